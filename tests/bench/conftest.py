"""The drivers of the benchmark need vLLM and built programs: `make test-bench`."""

import os

if "CHIASM_BENCH" not in os.environ:
    collect_ignore = ["test_drivers.py"]
