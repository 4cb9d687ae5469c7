"""Upstream's ProducerSession: from the bytes of a request to the bytes of its ack."""

import time
import uuid
from typing import Any

import msgspec
from vllm.distributed.ec_transfer.ec_connector.cpu.protocol import XferReq
from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache import EmbeddingCache
from vllm.distributed.ec_transfer.ec_connector.cpu.session import ProducerSession
from vllm.distributed.ec_transfer.ec_connector.cpu.utils import (
    build_block_descs,
    serialize_mem_descriptor,
)

from bench.rows import Effort, parser
from bench.upstream.common import BLOCK_BYTES, COMPAT, row

REGIONS = (10_000, 100_000, 1_000_000)
ENTRY_BLOCKS = 256
HASH = "h" * 64


class Sink:
    """A control transport that counts what is sent."""

    def __init__(self) -> None:
        self.sent = 0

    def send(self, _identity: bytes, payload: bytes) -> None:
        self.sent += len(payload)

    def close(self) -> None:
        pass


class Described:
    """A data transport that has its descriptor and moves nothing."""

    def __init__(self, blocks: int) -> None:
        descriptors = build_block_descs(0x7F00_0000_0000, blocks, BLOCK_BYTES)
        self.descriptor = serialize_mem_descriptor(descriptors)

    def get_agent_metadata(self) -> bytes:
        # As much as a NIXL agent's over UCX.
        return b"m" * 451

    def get_mem_descriptor(self) -> bytes:
        return self.descriptor

    def get_new_notifs(self) -> dict[str, Any]:
        return {}


def main(arguments: list[str]) -> None:
    effort = Effort(parser(__doc__).parse_args(arguments).effort)
    encoder = msgspec.msgpack.Encoder()
    for blocks in REGIONS[: effort.choose(3, 3, 1)]:
        cache = EmbeddingCache(blocks)
        cache.alloc(HASH, ENTRY_BLOCKS)
        cache.mark_ready(HASH)
        sink = Sink()
        session = ProducerSession(sink, Described(blocks), cache, COMPAT)
        count = effort.choose(100, 20, 2)
        requests = []
        for _ in range(count):
            name = str(uuid.uuid4())
            request = XferReq(mm_hash=HASH, compatibility_hash=COMPAT, session_id=name)
            requests.append((b"peer", encoder.encode(request)))
        start = time.perf_counter()
        for request in requests:
            session.poll([request])
        us = (time.perf_counter() - start) / count * 1e6
        case = {"region_blocks": blocks, "entry_blocks": ENTRY_BLOCKS}
        row("ack", case, "ack_bytes", sink.sent / count)
        row("ack", case, "request_to_ack_us", us)
