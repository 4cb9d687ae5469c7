"""The native part of Chiasm: what an engine's scheduler (`Node`) and its workers (`Worker`) call.

Every call is short and may come from any thread, unless it says otherwise. Where a call copies or
waits, the GIL is released. No Python is called from a thread of Chiasm's; what it has to say waits
in a queue for `drain_logs`. In a forked child, nodes and workers of the parent do nothing.
"""

from collections.abc import Sequence
from typing import Any, Final, NoReturn, final

__all__ = [
    "FALLBACK",
    "METRICS",
    "READY",
    "UNAVAILABLE",
    "WAIT",
    "ConfigError",
    "Model",
    "Node",
    "Order",
    "Settings",
    "StartError",
    "Worker",
    "WorkerError",
    "__version__",
    "drain_logs",
    "nixl_helper",
]

__version__: Final[str]

READY: Final[int]
"""Run the request: what it needs is computed, in the region and pinned, or was never announced."""
WAIT: Final[int]
"""Not in this step."""
FALLBACK: Final[int]
"""Run the request and encode the items that `Node.fallbacks` names; the others are ready."""
UNAVAILABLE: Final[int]
"""The request fails: hold it back until it has come out of `Node.take_unavailable_requests`."""

METRICS: Final[dict[str, tuple[str, str | None, str]]]
"""Every metric by name: its kind (`"counter"` or `"gauge"`), the name of its label if it has one,
and what it counts. The keys of `Node.metrics`."""

class ConfigError(ValueError):
    """The configuration cannot be used. The text has one line for each problem."""

class StartError(RuntimeError):
    """A node or a worker could not start; nothing is left behind. The text names the remedy."""

class WorkerError(RuntimeError):
    """A worker did not do what it was asked, or bytes are no order."""

@final
class Settings:
    """What an operator has set, checked as a whole.

    Scheduler and workers make their own from the same text, and get the same.
    """

    def __new__(
        cls,
        transfer_config_json: str,
        *,
        data_parallel_index: int = 0,
        host_address: str | None = None,
    ) -> Settings:
        """Reads the whole `--ec-transfer-config` object, as JSON, and the process environment.

        `engine_id` must stand in it: vLLM puts a random one there if the operator has set none, and
        every process of the instance must have the same. `host_address` is this host's address as
        the engine has found it (`vllm.utils.network_utils.get_ip()`).

        Raises `ConfigError`.
        """

    @property
    def warnings(self) -> list[str]:
        """What an operator should know. To be logged, once, by the scheduler."""
    @property
    def effective(self) -> list[tuple[str, str, str]]:
        """Every effective value: name, value for people, source. To be logged once."""
    @property
    def engine_id(self) -> str: ...
    @property
    def data_parallel_index(self) -> int: ...
    @property
    def region_name(self) -> str:
        """`chiasm-<engine_id>_dp<index>`: the file in `/dev/shm`, the same in every process."""
    @property
    def role(self) -> str:
        """`ec_producer`, `ec_consumer` or `ec_both`."""
    @property
    def produces(self) -> bool:
        """Whether encoder outputs are saved here."""
    @property
    def consumes(self) -> bool:
        """Whether encoder outputs are loaded here."""
    @property
    def remote(self) -> bool:
        """`ec_remote`: whether other instances come into it at all."""
    @property
    def serves(self) -> bool:
        """Whether others can read from this instance: it produces and is remote."""
    @property
    def reads(self) -> bool:
        """Whether this instance reads from others: it consumes and is remote."""
    @property
    def region_bytes(self) -> int: ...
    @property
    def allowed_peers(self) -> list[str]: ...
    @property
    def wait_budget_s(self) -> float: ...
    @property
    def save_timeout_s(self) -> float: ...

@final
class Model:
    """What both sides of a transfer must have in common."""

    def __new__(
        cls,
        *,
        vllm_version: str,
        model: str,
        dtype: str,
        row_elements: int,
        fingerprint: dict[str, str | None] | None = None,
    ) -> Model:
        """`dtype` is torch's name (`torch.bfloat16`), `row_elements` the size of the model's input
        embeddings: a block holds one row of them. `fingerprint` has what vLLM's compatibility hash
        leaves out and what a producer and a consumer know alike: weights revision, quantisation,
        processor options. It is compared between Chiasm nodes only, and only where both have one.

        Raises `ConfigError`: an unknown dtype, no elements.
        """

    @property
    def block_size_bytes(self) -> int:
        """`row_elements` times the size of an element, as in vLLM's connector."""
    @property
    def compat_hash(self) -> str:
        """vLLM's compatibility hash: the same in its own connector."""
    @property
    def fingerprint(self) -> str | None:
        """The digest of the fingerprint's parts."""

@final
class Order:
    """What a worker is told to do, made by `Node.dispatch_save` and `Node.dispatch_load`."""

    def __new__(cls, data: bytes) -> Order:
        """Raises `WorkerError` if these bytes are no order."""

    @property
    def is_save(self) -> bool: ...
    @property
    def dispatch(self) -> int:
        """The number of this dispatch; never used again in the life of a node."""
    @property
    def rows(self) -> int: ...
    @property
    def width(self) -> int: ...
    @property
    def dtype(self) -> str | None:
        """torch's name (`torch.bfloat16`). None: a peer has not said it; the model's, then."""
    @property
    def nbytes(self) -> int:
        """Exact length of the encoder output."""

@final
class Node:
    """The scheduler's side of one instance: one background thread, the sockets, the books.

    After construction no call raises for what a client or a peer sent, nor for what went wrong
    inside: then the answer is the careful one (not there, no room, encode it yourself, this request
    fails) and the reason is in the log.
    """

    def __new__(cls, settings: Settings, model: Model, *, ranks: int = 1) -> Node:
        """Makes the region, or attaches to the one that the workers have made, and starts.

        `ranks` is how many workers load: tensor parallel times prefill context parallel.

        Raises `StartError` or `ConfigError`.
        """

    @property
    def endpoint(self) -> str | None:
        """`host:port` as announced and as consumers allow it. None if this node does not serve."""
    @property
    def absent_ranks(self) -> list[int]:
        """Ranks of which no live worker is attached to the region. Workers are built first, so at
        the start these are on another host, or have failed."""
    @property
    def host(self) -> str | None: ...
    @property
    def port(self) -> int | None: ...
    def ensure(self, request_id: str, n_items: int, num_computed_tokens: int) -> int | None:
        """What to do with a request in this step: `READY`, `WAIT`, `FALLBACK` or `UNAVAILABLE`.

        None: it is not known, or with another number of items; `track` it.
        """
    def track(
        self,
        request_id: str,
        items: Sequence[tuple[str, int, int | None, int | None, bool]],
        params: Any,
        num_computed_tokens: int,
    ) -> int:
        """Makes a request known, with all its items, and says what to do with it in this step, as
        `ensure` does from then on.

        An item is (identifier, end, rows, width, local_input): `end` the index of the token after
        its last one, `rows` its number of embeddings, `width` the elements of each if that is
        certain (else any whole number of blocks will do), `local_input` whether the engine can
        encode it itself. `params` is the request's `ec_transfer_params` as it came, whatever that
        is.

        Raises `TypeError` or `OverflowError` if `items` are not of this form, which is the caller's
        own mistake.

        Called again with more items it adds those; what was announced first stands.
        """
    def fallbacks(self, request_id: str) -> list[str]:
        """Identifiers that were announced and that the engine has to encode all the same. Once
        named, an item stays named."""
    def has_promised(self, identifier: str) -> bool:
        """Whether the engine may count on loading this: it is in the region and pinned for a
        request that was told `READY` or `FALLBACK`. What `has_cache_item` answers on a consumer."""
    def has_entry(self, identifier: str) -> bool:
        """Whether the region holds this, or a save of it is under way. It may be evicted next."""
    def dispatch_save(
        self, identifier: str, rows: int, width: int, dtype: str | None = None
    ) -> bytes | None:
        """The order for rank 0 to save an encoder output; `dtype` is the model's if not given.

        None: there is nothing to do (it is there or under way) or it cannot be done (no room now,
        larger than the region, no worker); the log says which. An order that does not reach its
        worker is to be discarded.
        """
    def dispatch_load(self, identifier: str) -> bytes | None:
        """The order for all ranks to load what was promised. None if it was not."""
    def discard(self, order: bytes) -> None:
        """Gives up an order that no worker has got, nor ever will: it is over at once."""
    def withdraw(self, order: bytes) -> None:
        """Gives up a save that its worker may have begun: the identifier is free at once, the
        blocks when the worker reports or is dead. Nothing happens to a load."""
    def announce(self, identifier: str) -> dict[str, Any] | None:
        """`peer_host`, `peer_port`, `size_bytes` and `shape` of an entry, ready or not: what an
        announcement has besides the engine's own fields. None if there is none, or if this node
        does not serve."""
    def release(self, request_id: str, identifier: str) -> None:
        """The engine has its own copy of this item of the request."""
    def finish(self, request_id: str) -> None:
        """The request has ended, however."""
    def take_unavailable_requests(self) -> list[str]:
        """Requests that have failed since the last call, each exactly once."""
    @property
    def outstanding(self) -> int:
        """Saves and loads that workers have and have not reported: what `has_pending_push_work` is
        about."""
    def set_allowed_peers(self, peers: Sequence[str]) -> None:
        """Replaces the list of producers that may be read from (`host:port`, `host:first-last`).
        What waits for one that is not on it any more is refused. Raises `ConfigError`."""
    def metrics(self) -> dict[str, float]:
        """Every counter and gauge, by its name in `METRICS`; one with a label as `name/value`."""
    @property
    def news(self) -> int:
        """How much has happened that a waiting request could be interested in."""
    def wait(self, seen: int, limit_s: float) -> None:
        """Waits until `news` is more than `seen`, or the limit is over. Releases the GIL. For tests
        and for engines that have nothing else to do; none has to."""
    @property
    def is_stopped(self) -> bool:
        """Whether it was shut down, or has stopped because something inside it was broken. Then
        nothing is read or saved, only what was promised is loaded, and requests are answered from
        local input or fail."""
    def shutdown(self, limit_s: float = 0.0) -> None:
        """Lets peers finish what they were granted for up to `limit_s`, then stops and removes the
        region. Safe twice. Releases the GIL."""
    def break_for_test(self) -> None:
        """Breaks it as a bug would. FOR TESTS."""

@final
class Worker:
    """One worker rank: copies in, copies out, and says so.

    Every order is reported exactly once, whether it worked or not; `save` and `load` do so
    themselves.
    """

    def __new__(cls, settings: Settings, model: Model, *, rank: int = 0) -> Worker:
        """Makes the region, or attaches to the one that is there, and becomes this rank.

        Raises `StartError` or `ConfigError`.
        """

    @property
    def rank(self) -> int: ...
    @property
    def region_address(self) -> int:
        """Address of the first block in this process, on a page boundary: for pinning. Valid until
        `shutdown`."""
    @property
    def region_bytes(self) -> int:
        """Bytes of all blocks."""
    def extents(self, order: Order) -> list[tuple[int, int]]:
        """Where the order's bytes lie, in order: (offset from `region_address`, length), `nbytes`
        in all. Raises `WorkerError` if that is outside the region."""
    def save(self, order: Order, address: int, nbytes: int) -> None:
        """Copies `nbytes` bytes of host memory at `address` into the region and reports.

        The memory must stay as it is until this returns. Releases the GIL. Raises `WorkerError` if
        this is no save for this rank, and, after it has reported the failure, if it has another
        length.
        """
    def load(self, order: Order, address: int, nbytes: int) -> None:
        """Copies the order's bytes to host memory at `address` and reports. As `save`."""
    def complete_saved(self, order: Order) -> None:
        """A device copy has brought the order's bytes: takes their digest and reports. Releases the
        GIL."""
    def complete(self, order: Order, ok: bool) -> None:
        """Reports a load whose device copy has ended, or an order that failed."""
    def shutdown(self) -> None:
        """Lets go of the region; orders that were not reported count as lost. Safe twice. No memory
        of the region may be in use."""

def drain_logs() -> list[tuple[int, str, str]]:
    """What Chiasm has logged in this process since the last call: level (as in `logging`), target,
    message. At most 1024 lines wait; how many more there were is the last line."""

def nixl_helper() -> NoReturn:
    """Be a NIXL helper process, as whose whole work a node has started this one; see
    `chiasm._nixl_helper`."""
