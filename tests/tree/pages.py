"""What pages of the documentation say about tests, held against the tree."""

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Short for the integration tests of one crate.
CRATES = {name: f"crates/chiasm-{name}/tests/it" for name in ("core", "region", "zmtp", "node")}


def named_in(text: str) -> list[str]:
    """Every test that is named, as file::function."""
    return re.findall(r"`([^`\s]+\.(?:rs|py)::[^`\s]+)`", text)


def path_of(file: str) -> Path:
    crate, _, rest = file.partition("/")
    return ROOT / (f"{CRATES[crate]}/{rest}" if crate in CRATES else file)


def is_a_test(file: str, function: str) -> bool:
    """Whether the file has that function and it is run as a test."""
    path = path_of(file)
    if not path.is_file():
        return False
    source = path.read_text()
    if path.suffix == ".py":
        return bool(re.search(rf"^def {function}\(", source, re.MULTILINE))
    head = re.search(rf"^ *fn {function}\(", source, re.MULTILINE)
    if head is None:
        return False
    # Back to the end of whatever stands before: in between are its attributes.
    attributes = re.split(r"^ *\}$", source[: head.start()], flags=re.MULTILINE)[-1]
    return bool(re.search(r"#\[(test|rstest)\]", attributes))
