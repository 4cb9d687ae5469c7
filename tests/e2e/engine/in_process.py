"""An engine in this process, driven by a test through a pipe: no server, no second process.

    python in_process.py OPTIONS

OPTIONS is a JSON object, the keyword arguments of vllm.LLM. Each line of standard input is a JSON
list of requests, which run as one batch; each is answered with one line on standard output, a list
of as many results. A request has `messages`, `max_tokens`, and may have `ignore_eos` and `params`
(its ec_transfer_params). A result has `tokens`, `text`, `finished` (vLLM's reason) and `params`.
The first line says that it is ready. Ends with standard input.
"""

import json
import os
import sys
from typing import Any


def run(llm: Any, requests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    from vllm import SamplingParams

    sampling = [
        SamplingParams(
            temperature=0,
            max_tokens=request["max_tokens"],
            ignore_eos=request.get("ignore_eos", False),
            extra_args={"ec_transfer_params": request["params"]} if "params" in request else None,
        )
        for request in requests
    ]
    outputs = llm.chat([request["messages"] for request in requests], sampling, use_tqdm=False)
    return [
        {
            "tokens": list(output.outputs[0].token_ids),
            "text": output.outputs[0].text,
            "finished": output.outputs[0].finish_reason,
            "params": output.ec_transfer_params,
        }
        for output in outputs
    ]


def main() -> None:
    # vLLM writes its log on standard output: the answers get a descriptor of their own.
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    from vllm import LLM

    llm = LLM(**json.loads(sys.argv[1]))
    answers.write("ready\n")
    for line in sys.stdin:
        answers.write(json.dumps(run(llm, json.loads(line))) + "\n")


if __name__ == "__main__":
    main()
