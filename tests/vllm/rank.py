"""A worker of one tensor parallel rank in a process of its own; its arguments: rank, configuration.

Reads pickled commands from standard input, one per line in hex, and answers in the same way.
"""

import pickle
import sys
from typing import Any

import torch
from vllm.distributed.ec_transfer.ec_connector.base import ECConnectorRole

from chiasm.vllm import ChiasmConnector, instance
from tests.vllm.engine import encoded, vllm_config


def main() -> None:
    rank, said = int(sys.argv[1]), pickle.loads(bytes.fromhex(sys.argv[2]))
    instance.own_rank = lambda: rank
    worker = ChiasmConnector(vllm_config(**said), ECConnectorRole.WORKER)
    encoder_cache: dict[str, torch.Tensor] = {}
    answer("ready")
    for line in sys.stdin:
        metadata, to_encode, report = pickle.loads(bytes.fromhex(line))
        worker.bind_connector_metadata(metadata)
        worker.start_save_caches(encoder_cache=encoder_cache)
        if report:
            worker.start_load_caches(encoder_cache)
        for identifier, rows in to_encode:
            encoder_cache[identifier] = encoded(identifier, rows)
            worker.save_caches(encoder_cache=encoder_cache, mm_hash=identifier)
        worker.get_finished(set())
        worker.clear_connector_metadata()
        answer({name: tensor.float().sum().item() for name, tensor in encoder_cache.items()})
        encoder_cache.clear()
    worker.shutdown()


def answer(what: Any) -> None:
    print(pickle.dumps(what).hex(), flush=True)
