"""Shows what a consumer does with an announcement whose endpoint no operator has approved.

    make vllm test-e2e                  once: the environment, and the package in target/site
    export CHIASM_TEST_SITE=$PWD/target/site
    .venv/bin/python -m tests.e2e.show_allowlist {chiasm|upstream}

Starts a producer and a consumer with the connector that is named, encodes an image, and hands the
consumer the true announcement with one thing changed: the port, which is that of a listening socket
of this script. Prints how each request ended, and whether the socket was connected to. Chiasm runs
on vLLM's first model runner; upstream's connector runs on the second only.
"""

import sys
import tempfile
from pathlib import Path

from tests.e2e import environment
from tests.e2e.apis import APIS, Picture
from tests.e2e.engines import Server, free_ports
from tests.e2e.fleet import ENCODER, connector, encode, listening, upstream, with_plugin
from tests.e2e.listener import Listener


def pair(kind: str, folder: Path) -> tuple[Server, Server]:
    """A producer and a consumer, which is allowed to read from that producer and nobody else."""
    model = environment.model("qwen2_vl")
    v2 = kind == "upstream"
    port = free_ports(2)
    if v2:
        produces, consumes = upstream("ec_producer", "e0"), upstream("ec_consumer", "d0")
    else:
        allowed = [f"127.0.0.1:{port}"]
        produces = connector("ec_producer", "e0", ec_remote=True)
        consumes = connector("ec_consumer", "d0", ec_remote=True, ec_allowed_peers=allowed)
    own = {} if v2 else with_plugin()
    return (
        Server(
            *("producer", folder, model),
            connector=produces,
            v2=v2,
            environment=listening(port) | own,
            **ENCODER,
        ),
        Server(
            *("consumer", folder, model),
            connector=consumes,
            v2=v2,
            environment=listening(port + 1) | own,
        ),
    )


def main() -> None:
    kind = sys.argv[1] if len(sys.argv) == 2 else ""
    if kind not in ("chiasm", "upstream"):
        sys.exit(__doc__)
    chat = APIS[0]
    with tempfile.TemporaryDirectory() as folder:
        producer, consumer = pair(kind, Path(folder))
        listener = Listener()
        try:
            producer.ready()
            consumer.ready()
            for seed, what in ((1, "without pixels"), (2, "with pixels")):
                encoded = encode(producer, Picture(seed))
                picture = encoded.named if seed == 1 else encoded.picture
                foreign = encoded.announced(peer_port=listener.port)
                before = listener.connections()
                with consumer.watched() as steps:
                    answer = chat.ask(consumer, picture, max_tokens=1, ec_transfer_params=foreign)
                contacts = listener.connections() - before
                print(
                    f"{kind}, {what}: HTTP {answer.status}, {steps.encoded} encoded by consumer,"
                    f" {contacts} connections to the endpoint that nobody approved"
                )
            approved = encode(producer, Picture(3))
            with consumer.watched() as steps:
                answer = chat.ask(
                    consumer, approved.named, max_tokens=1, ec_transfer_params=approved.params
                )
            print(
                f"{kind}, the producer's own endpoint: HTTP {answer.status},"
                f" {steps.encoded} encoded by the consumer; engine healthy: {consumer.healthy}"
            )
        finally:
            listener.close()
            producer.stop()
            consumer.stop()


if __name__ == "__main__":
    main()
