"""The scheduler's side: vLLM's scheduler hooks, said to `chiasm._native.Node`.

It translates and keeps the orders of the step that is being scheduled. Whether a request is ready,
waits, falls back or fails is the node's decision, and everything that takes time happens on the
node's thread: no hook waits.
"""

from typing import TYPE_CHECKING, Any

from vllm.distributed.ec_transfer.ec_connector.utils import PlaceholderMetadataResolver

from chiasm import _native
from chiasm._native import FALLBACK, READY
from chiasm.vllm import instance, logs
from chiasm.vllm.announcements import announcements
from chiasm.vllm.borrowed import Borrowed
from chiasm.vllm.engine_cache import EngineCache
from chiasm.vllm.local_input import has_local_input
from chiasm.vllm.logs import logger
from chiasm.vllm.metadata import ChiasmMetadata
from chiasm.vllm.metrics import ChiasmStats, Readings
from chiasm.vllm.withheld import withhold_params

if TYPE_CHECKING:
    from vllm.config import VllmConfig
    from vllm.multimodal.inputs import MultiModalFeatureSpec
    from vllm.v1.core.sched.output import SchedulerOutput
    from vllm.v1.request import Request

DRAIN_LIMIT_S = 5.0
"""How long peers may finish what they were granted when the engine shuts down."""


class SchedulerSide:
    """One per engine core. Raises `ConfigError` or `StartError` at the start, and nothing later."""

    def __init__(
        self,
        vllm_config: "VllmConfig",
        *,
        cache: EngineCache | None = None,
        resolver: PlaceholderMetadataResolver | None = None,
    ) -> None:
        odd = instance.check(vllm_config)
        self.settings = instance.settings_of(vllm_config)
        transfer = vllm_config.ec_transfer_config
        self._widths: dict[str, int] = dict(transfer.mm_encoder_output_widths) if transfer else {}
        self._cache = cache if cache is not None else EngineCache()
        self._resolver = resolver or PlaceholderMetadataResolver(vllm_config.model_config)
        # Asked for every waiting request in every step.
        self._produces, self._consumes = self.settings.produces, self.settings.consumes
        self._serves = self.settings.serves
        self._borrowed = Borrowed(self._cache)
        self._failed: set[str] = set()
        self._saves: dict[str, bytes] = {}
        self._loads: dict[str, bytes] = {}
        self._not_saved: set[str] = set()
        self._widths_missed: set[str] = set()
        try:
            model = instance.model_of(vllm_config)
            ranks = instance.ranks_of(vllm_config)
            self._node = _native.Node(self.settings, model, ranks=ranks)
        finally:
            logs.drain()
        self._refuse_absent_ranks()
        self._ensure = self._node.ensure
        self._readings = Readings(self._node)
        self._introduce(odd)
        if self.settings.remote:
            self._name_identity(vllm_config, model)
        self._idle_drain = logs.IdleDrain()

    def _refuse_absent_ranks(self) -> None:
        """vLLM constructs all workers first: one that is not here is on another host."""
        absent = self._node.absent_ranks
        if absent:
            self._node.shutdown()
            logs.drain()
            raise _native.StartError(
                f"ChiasmConnector: no worker of rank {', '.join(map(str, absent))} is attached to "
                f"the region {self.settings.region_name} of this host; keep all tensor and prefill "
                "context parallel ranks of an instance on one host, with one /dev/shm"
            )

    def _introduce(self, odd: str | None) -> None:
        for warning in [*([odd] if odd else []), *self.settings.warnings]:
            logger.warning("%s", warning)
        for name, value, source in self.settings.effective:
            logger.info("%s = %s (%s)", name, value, source)
        if (endpoint := self._node.endpoint) is not None:
            logger.info(
                "encoder outputs are served at %s to whoever reaches that address and has the same "
                'model; consumers approve it with ec_allowed_peers: ["%s"]',
                endpoint,
                endpoint,
            )
        if not self._cache.is_known:
            logger.warning(
                "no scheduler of vLLM's constructs this connector: what its encoder cache holds is "
                "not known, and outputs that the region has evicted are not saved again"
            )

    def _name_identity(self, vllm_config: "VllmConfig", model: _native.Model) -> None:
        """What to compare when a producer answers NACK_INCOMPAT."""
        of_engine = vllm_config.model_config
        logger.info(
            "peers must have the same vLLM version (%s), model path (%s), dtype (%s) and row size "
            "(%d bytes): compatibility hash %.12s; between Chiasm instances also revision, "
            "quantisation and processor options: fingerprint %.12s",
            instance.vllm_version(),
            of_engine.model,
            of_engine.dtype,
            model.block_size_bytes,
            model.compat_hash,
            model.fingerprint or "none",
        )

    # Before a request is scheduled.

    def ensure_cache_available(self, request: "Request", num_computed_tokens: int) -> bool:
        """Whether the request may run in this step. One short call while nothing has changed."""
        if not self._consumes:
            return True
        computed = num_computed_tokens if num_computed_tokens > 0 else 0
        decision = self._ensure(request.request_id, len(request.mm_features), computed)
        if decision is None:
            decision = self._track(request, computed)
        if decision == FALLBACK:
            self._forget_announcements(request)
        elif decision != READY:
            return False
        missed = self._borrowed.lost(request, computed, self._node)
        if missed is None:
            return True
        logger.error(
            "request %s fails: the encoder output %s was neither announced nor sent along, and "
            "the engine's encoder cache does not hold it for certain any more; send the media "
            "again",
            logs.shown(request.request_id),
            logs.shown(missed[:12]),
        )
        self._failed.add(request.request_id)
        return False

    def degraded(self, request: "Request") -> bool:
        """The answer where asking has failed: encode everything here, or fail this request."""
        if not self._consumes:
            return True
        try:
            if all(has_local_input(feature, self._resolver) for feature in request.mm_features):
                return True
        except Exception:
            name = logs.shown(request.request_id)
            logger.exception("request %s fails: what it carries is not known", name)
        self._failed.add(request.request_id)
        return False

    def _track(self, request: "Request", computed: int) -> int:
        """Makes all items of a request known; the only time that they cross into native code."""
        items = []
        borrowed = []
        for feature in request.mm_features:
            position = feature.mm_position
            end = position.offset + position.length
            local = has_local_input(feature, self._resolver)
            if not local and self._borrowed.may_borrow(feature.identifier):
                local = True
                borrowed.append((feature.identifier, end))
            width = self._widths.get(feature.modality)
            items.append((feature.identifier, end, position.get_num_embeds(), width, local))
        self._borrowed.note(request.request_id, borrowed)
        return self._node.track(request.request_id, items, request.ec_transfer_params, computed)

    def _forget_announcements(self, request: "Request") -> None:
        """Takes what has fallen back out of a copy of the request's params: they are the
        client's."""
        params = request.ec_transfer_params
        if not isinstance(params, dict):
            return
        gone = set(self._node.fallbacks(request.request_id)) & params.keys()
        if gone:
            request.ec_transfer_params = {
                identifier: value for identifier, value in params.items() if identifier not in gone
            }

    def take_unavailable_requests(self) -> set[str]:
        """Requests that have failed since the last call, each once."""
        of_node = self._node.take_unavailable_requests()
        return self.own_failures().union(of_node)

    def own_failures(self) -> set[str]:
        """Those of them that the node knows nothing about."""
        failed, self._failed = self._failed, set()
        return failed

    def has_cache_item(self, identifier: str) -> bool:
        """Whether the engine may load this: only what was promised, which nothing can evict."""
        return self._consumes and self._node.has_promised(identifier)

    # While a step is scheduled.

    def update_state_after_alloc(self, request: "Request", index: int) -> None:
        """The engine has made room for an item: it is loaded if it was promised, and else saved."""
        feature = request.mm_features[index]
        identifier = feature.identifier
        node = self._node
        may_load = self._consumes and identifier not in self._loads
        if may_load and node.has_promised(identifier):
            order = node.dispatch_load(identifier)
            if order is not None:
                self._loads[identifier] = order
        if self._produces:
            self._order_save(feature)

    def _order_save(self, feature: "MultiModalFeatureSpec") -> None:
        identifier = feature.identifier
        if identifier in self._not_saved or self._node.has_entry(identifier):
            return
        width = self._widths.get(feature.modality)
        order = None
        if width is None:
            self._miss_width(feature.modality)
        else:
            rows = feature.mm_position.get_num_embeds()
            order = self._node.dispatch_save(identifier, rows, width)
        if order is None:
            self._not_saved.add(identifier)
        else:
            self._saves[identifier] = order

    def _miss_width(self, modality: str) -> None:
        if modality not in self._widths_missed:
            self._widths_missed.add(modality)
            logger.warning(
                "vLLM measured no encoder output width for %s (measured: %s), so such outputs are "
                "neither kept nor announced",
                modality,
                ", ".join(sorted(self._widths)) or "none",
            )

    def build_connector_meta(self, scheduler_output: "SchedulerOutput") -> ChiasmMetadata:
        """This step's orders. Called once in every step, also in empty ones."""
        withhold_params(scheduler_output)
        if self._serves:
            self._save_again(scheduler_output)
        metadata = ChiasmMetadata(saves=self._saves, loads=self._loads)
        self._saves, self._loads, self._not_saved = {}, {}, set()
        logs.drain()
        return metadata

    def _save_again(self, scheduler_output: "SchedulerOutput") -> None:
        """Orders saves of what new requests need, the engine still holds and the region has
        evicted: vLLM encodes nothing and calls nothing for it, and there would be nothing to
        announce."""
        for data in scheduler_output.scheduled_new_reqs:
            for feature in data.mm_features or ():
                identifier = feature.identifier
                if identifier not in self._saves and self._cache.holds(identifier):
                    self._order_save(feature)

    # Afterwards.

    def request_finished(self, request: "Request") -> tuple[bool, dict[str, Any] | None]:
        """Forgets the request; what a producer announces of it. Blocks are never held back."""
        if self._consumes:
            self._node.finish(request.request_id)
            self._borrowed.forget(request.request_id)
            self._failed.discard(request.request_id)
        if not self._serves or not request.mm_features:
            return False, None
        return False, announcements(request.mm_features, self._resolver, self._node)

    def has_pending_push_work(self) -> bool:
        """Whether workers have orders. Peers are served without any step of the engine."""
        return self._node.outstanding > 0

    def stats(self) -> ChiasmStats | None:
        """What has changed since the last call."""
        return self._readings.take()

    def shutdown(self) -> None:
        """Lets peers finish for a moment, then ends. Safe twice."""
        self._node.shutdown(DRAIN_LIMIT_S if self._serves else 0.0)
        self._idle_drain.stop()
