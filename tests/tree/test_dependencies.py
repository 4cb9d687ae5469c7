"""The table of dependencies in ADR 0002 names what the manifests name, under their licences."""

import json
import re
import subprocess
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ADR = ROOT / "docs" / "adr" / "0002-dependencies.md"


def direct_dependencies() -> set[str]:
    """Every crate that a manifest of the workspace asks for, but for the workspace's own."""
    names: set[str] = set()
    for manifest in [ROOT / "Cargo.toml", *ROOT.glob("crates/*/Cargo.toml")]:
        parsed = tomllib.loads(manifest.read_text())
        tables = [parsed, parsed.get("workspace", {}), *parsed.get("target", {}).values()]
        for table in tables:
            for kind in ("dependencies", "dev-dependencies", "build-dependencies"):
                names |= set(table.get(kind, {}))
    own = {path.parent.name for path in ROOT.glob("crates/*/Cargo.toml")}
    return names - own


def table() -> dict[str, str]:
    """Crate to licence, as the ADR has it: rows that begin with | `crate` | licence |."""
    rows = re.findall(r"^\| `([a-z0-9_-]+)` \| ([^|]+) \|", ADR.read_text(), re.MULTILINE)
    assert len(rows) == len(dict(rows)), "a crate stands in the table twice"
    return {name: licence.strip() for name, licence in rows}


def test_the_table_names_every_direct_dependency_and_no_other() -> None:
    assert set(table()) == direct_dependencies()


def test_the_licences_in_the_table_are_those_of_the_crates() -> None:
    metadata = json.loads(
        subprocess.run(
            ["cargo", "metadata", "--locked", "--format-version", "1"],
            cwd=ROOT,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    )
    # The words alone: "MIT OR Apache-2.0", "Apache-2.0 OR MIT" and "MIT/Apache-2.0" say the same.
    stated = {name: set(re.findall(r"[A-Za-z]+-?[0-9.]*", text)) for name, text in table().items()}
    for package in metadata["packages"]:
        if package["name"] in stated:
            actual = set(re.findall(r"[A-Za-z]+-?[0-9.]*", package["license"]))
            assert stated[package["name"]] == actual, package["name"]
