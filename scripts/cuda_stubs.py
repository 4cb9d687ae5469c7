"""Stand-ins for the CUDA libraries that PyPI's torch is linked with.

    python scripts/cuda_stubs.py SITE_PACKAGES

`import torch` needs a dozen CUDA libraries to be there, 4 GB of them, also where there is no GPU
and none of their functions is ever called. This makes one small library that has every symbol which
torch wants, each answering "no device", and puts it under every name that torch wants, where torch
looks: SITE_PACKAGES/nvidia/cu13/lib. No process has to set anything in its environment for it.

Needs readelf, nm and cc. Must never be run on an environment that is to use a GPU.
"""

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

# What the libraries are called, and their functions where the symbol carries no version.
LIBRARY = re.compile(r"lib(cu|nv|nccl)")
FUNCTION = re.compile(
    r"(__)?cuda[A-Z]|cu[A-Z]|cu(blas|dnn|fft|File|pti|rand|solver|sparse)|nccl|nvrtc|nvshmem|nvJitLink"
)
NO_DEVICE = 100  # cudaErrorNoDevice; the other libraries have no such value, and any will do

# Functions whose answer is looked at while torch is loaded. All others answer NO_DEVICE.
ANSWERS = {
    "__cudaRegisterFatBinary": "static void *handle[4]; void **{name}(void) {{ return handle; }}",
    "cudaGetDeviceCount": f"int {{name}}(int *count) {{{{ *count = 0; return {NO_DEVICE}; }}}}",
    "cudaDriverGetVersion": "int {name}(int *version) {{ *version = 0; return 0; }}",
    "cudaRuntimeGetVersion": "int {name}(int *version) {{ *version = 0; return 0; }}",
    "cudaGetLastError": "int {name}(void) {{ return 0; }}",
    "cudaPeekAtLastError": "int {name}(void) {{ return 0; }}",
}
# Functions that answer a text.
TEXT = re.compile(r"Get(Error|Status)(String|Name)$|GetLastError$")


def output(*command: str | Path) -> str:
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def definition(name: str) -> str:
    """The C text of one stand-in."""
    if answer := ANSWERS.get(name):
        return answer.format(name=name)
    if name.startswith("__cuda"):
        return f"int {name}(void) {{ return 0; }}"
    if TEXT.search(name):
        return f'const char *{name}(int status) {{ return "no CUDA here"; }}'
    return f"int {name}(void) {{ return {NO_DEVICE}; }}"


def wanted(libraries: list[Path]) -> tuple[set[str], dict[str, set[str]], set[str]]:
    """What torch wants: the names of libraries, symbols by version, symbols without a version."""
    names: set[str] = set()
    versioned: dict[str, set[str]] = defaultdict(set)
    plain: set[str] = set()
    defined: set[str] = set()
    for library in libraries:
        for name in re.findall(r"\(NEEDED\).*\[(.+)\]", output("readelf", "-d", library)):
            if LIBRARY.match(name):
                names.add(name)
        # Which versions are a CUDA library's: `File:` names it, the lines below are its versions.
        versions: set[str] = set()
        ours = False
        for line in output("readelf", "-V", library).splitlines():
            if found := re.search(r"File: (\S+)", line):
                ours = LIBRARY.match(found[1]) is not None
            elif ours and (found := re.search(r"Name: (\S+)", line)):
                versions.add(found[1])
        for line in output("nm", "-D", "--undefined-only", library).splitlines():
            symbol, _, version = line.split()[-1].replace("@@", "@").partition("@")
            if version in versions:
                versioned[version].add(symbol)
            elif not version and FUNCTION.match(symbol):
                plain.add(symbol)
        for line in output("nm", "-D", "--defined-only", library).splitlines():
            defined.add(line.split()[-1].partition("@")[0])
    return names, versioned, plain - defined


def main() -> None:
    site = Path(sys.argv[1])
    libraries = sorted([*site.glob("torch/lib/*.so*"), *site.glob("torch/_C*.so")])
    if not libraries:
        sys.exit(f"error: there is no torch in {site}")
    names, versioned, plain = wanted(libraries)
    folder = site / "nvidia/cu13/lib"
    folder.mkdir(parents=True, exist_ok=True)
    symbols = sorted(plain.union(*versioned.values()))
    source = folder / "stubs.c"
    source.write_text("".join(definition(symbol) + "\n" for symbol in symbols))
    script = folder / "stubs.map"
    script.write_text(
        "".join(
            f"{version} {{ global: {' '.join(f'{s};' for s in sorted(versioned[version]))} }};\n"
            for version in sorted(versioned)
        )
    )
    stubs = folder / "libchiasm-no-cuda.so"
    output(
        *("cc", "-shared", "-fPIC", "-w", f"-Wl,--version-script={script}"),
        *(f"-Wl,-soname,{stubs.name}", "-o", stubs, source),
    )
    for name in sorted(names):
        link = folder / name
        link.unlink(missing_ok=True)
        link.symlink_to(stubs.name)
    print(f"{len(symbols)} symbols stand in for {len(names)} CUDA libraries")


if __name__ == "__main__":
    main()
