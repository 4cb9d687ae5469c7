"""Instances as an operator would set them up: their connectors' configuration, ports and roles."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e import environment
from tests.e2e.apis import Picture, messages
from tests.e2e.engines import InProcess, Server, free_ports

REGION_BYTES = 4 << 20
# Small, so that what never comes is given up soon. Every wait below is bounded by the budget.
BUDGETS = {
    "wait_budget_s": 6,
    "consumer_ack_timeout_s": 1.5,
    "connect_timeout_s": 1,
    "read_timeout_s": 4,
}
# An encoder instance has no language model, and takes as many images at once as there are.
ENCODER: dict[str, Any] = {"mm_encoder_only": True, "max_num_batched_tokens": 16384}


def connector(role: str, engine_id: str, **settings: Any) -> dict[str, Any]:
    """Chiasm in an engine of this role."""
    return {
        "ec_connector": "ChiasmConnector",
        "ec_connector_module_path": "chiasm.vllm",
        "ec_role": role,
        "engine_id": f"{engine_id}-{free_ports(1)}",
        "ec_connector_extra_config": {"ec_cpu_bytes": REGION_BYTES} | settings,
    }


def upstream(role: str, engine_id: str) -> dict[str, Any]:
    """Upstream's own connector, with the defaults that it has."""
    return {
        "ec_connector": "UpstreamOnCpu",
        "ec_connector_module_path": "upstream_on_cpu",
        "ec_role": role,
        "engine_id": engine_id,
        "ec_connector_extra_config": {"ec_cpu_bytes": REGION_BYTES, "ec_enable_nixl": True},
    }


def listening(port: int) -> dict[str, str]:
    """The environment of an instance that serves here."""
    return {"VLLM_EC_SIDE_CHANNEL_HOST": "127.0.0.1", "VLLM_EC_SIDE_CHANNEL_PORT": str(port)}


def with_plugin() -> dict[str, str]:
    """The environment of an instance that can import Chiasm."""
    return {"PYTHONPATH": f":{environment.plugin()}"}


@dataclass(frozen=True)
class Encoded:
    """A picture that a producer has encoded, and what it announced."""

    picture: Picture
    params: dict[str, Any]

    @property
    def mm_hash(self) -> str:
        (mm_hash,) = self.params
        return mm_hash

    @property
    def named(self) -> Picture:
        """The same picture without its pixels."""
        return Picture(self.picture.seed, self.picture.side, self.mm_hash)

    def announced(self, **changes: Any) -> dict[str, Any]:
        """The announcement with other values in it."""
        return {self.mm_hash: self.params[self.mm_hash] | changes}


def encode(producer: Server, picture: Picture) -> Encoded:
    """Sends the picture alone, as the encoder's leg of a request."""
    body = {"messages": messages(picture, text=""), "max_tokens": 1, "temperature": 0}
    answer = producer.post("/v1/chat/completions", body | {"model": "tiny"})
    return Encoded(picture, answer.params)


@dataclass
class Fleet:
    """An encoder instance, an instance that prefills and decodes, and one that does all alone."""

    mono: InProcess
    producer: Server
    consumer: Server
    # Ports that the consumer may read from; the first is the producer's, the others are free.
    ports: list[int]

    def stop(self) -> None:
        for engine in (self.mono, self.producer, self.consumer):
            engine.stop()

    @property
    def alive(self) -> bool:
        return self.mono.alive and self.producer.healthy and self.consumer.healthy

    def reference(self, *pictures: Picture, max_tokens: int, **request: Any) -> dict[str, Any]:
        """What the engine that does all alone answers."""
        asked = {"messages": messages(*pictures), "max_tokens": max_tokens} | request
        (result,) = self.mono.run([asked])
        return result


def start(folder: Path) -> Fleet:
    """Starts all three, side by side, and waits until they serve."""
    model = environment.model("qwen2_vl")
    first = free_ports(40)
    ports = list(range(first, first + 40))
    mono = InProcess("mono", folder, model)
    producer = Server(
        "producer",
        folder,
        model,
        connector=connector("ec_producer", "encoder", ec_remote=True),
        environment=listening(first) | with_plugin(),
        **ENCODER,
    )
    allowed = [f"127.0.0.1:{first}-{first + 39}"]
    consumer = Server(
        "consumer",
        folder,
        model,
        connector=connector(
            "ec_consumer", "decode", ec_remote=True, ec_allowed_peers=allowed, **BUDGETS
        ),
        environment=with_plugin(),
        enable_scale_out=True,
    )
    fleet = Fleet(mono, producer, consumer, ports)
    try:
        for engine in (mono, producer, consumer):
            engine.ready()
    except BaseException:
        fleet.stop()
        raise
    return fleet
