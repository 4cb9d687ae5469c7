"""A NIXL helper process of a node that lives in a Python process: `python -m chiasm._nixl_helper`.

A node starts it and speaks with it over standard input. It never returns.
"""

from chiasm._native import nixl_helper

if __name__ == "__main__":
    nixl_helper()
