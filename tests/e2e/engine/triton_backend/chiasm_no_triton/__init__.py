"""A Triton backend named "cpu" that compiles nothing.

vLLM's second model runner has kernels in Triton, which compiles for GPUs only. With
TRITON_INTERPRET=1 they run in Triton's interpreter instead; but Triton still looks for an active
backend, and finds this. It is found by the entry point beside it, where this folder is on
PYTHONPATH.
"""
