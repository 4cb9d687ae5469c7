"""The rows of a run as tables: one per family and metric, who is measured beside whom."""

import json
from typing import Any

from bench.targets import targets


def number(value: float) -> str:
    """Three digits, as many as a figure of a benchmark is worth."""
    if value == 0:
        return "0"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"


def cell(row: dict[str, Any] | None) -> str:
    """The median; with the lowest and highest if there was more than one round."""
    if row is None:
        return ""
    text = number(row["median"])
    if len(row["values"]) > 1:
        text += f" ({number(row['lowest'])} - {number(row['highest'])})"
    return text


def key(case: dict[str, Any]) -> str:
    """The same for the same case."""
    return json.dumps(case, sort_keys=True)


def times(row: dict[str, Any] | None, other: dict[str, Any] | None) -> str:
    """One as a multiple of the other, where there are both."""
    if row is None or other is None or other["median"] <= 0:
        return ""
    return number(row["median"] / other["median"])


def metric_table(rows: list[dict[str, Any]]) -> list[str]:
    """The table of one metric: a line per case, a column for each who has it, and each of ours as
    a multiple of upstream's."""
    whats = list(dict.fromkeys(row["what"] for row in rows))
    names = list(dict.fromkeys(name for row in rows for name in row["case"]))
    cases = {key(row["case"]): row["case"] for row in rows}
    found = {(key(row["case"]), row["what"]): row for row in rows}
    ours = [what for what in whats if what.startswith("chiasm")] if "upstream" in whats else []
    ours = [what for what in ours if any((case, what) in found for case in cases)]
    heads = [*names, *whats, *(f"{what} / upstream" for what in ours)]
    table = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for case, values in cases.items():
        cells = [str(values.get(name, "")) for name in names]
        cells += [cell(found.get((case, what))) for what in whats]
        theirs = found.get((case, "upstream"))
        for what in ours:
            cells.append(times(found.get((case, what)), theirs))
        table.append("| " + " | ".join(cells) + " |")
    return table


def about(machine: dict[str, Any]) -> str:
    """What ran where, as a sentence or two."""
    before, after = machine["load_before"][0], machine["load_after"][0]
    effort = "" if machine["effort"] == "full" else f", {machine['effort']}"
    return (
        f"Commit {machine['commit'][:12]}{' with changes' if machine['changed'] else ''},"
        f" vLLM {machine['vllm'] or 'not measured'}, {machine['cpu']}, {machine['cores']} cores,"
        f" {machine['memory_gib']} GiB, Linux {machine['kernel']}; load"
        f" {before:.1f} before and {after:.1f} after{effort}, {machine['seconds']} s in all."
    )


def markdown(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Everything as a page."""
    page = [
        f"# Chiasm beside ECCPUConnector, {machine['date'][:10]}",
        "",
        about(machine),
        "Medians of the rounds, in brackets the lowest and the highest.",
        "",
        "## Targets",
        "",
        *target_table(rows),
    ]
    for family in dict.fromkeys(row["family"] for row in rows):
        of_family = [row for row in rows if row["family"] == family]
        page += ["", f"## {family}", "", f"![{family}]({family}.svg)"]
        for metric in dict.fromkeys(row["metric"] for row in of_family):
            of_metric = [row for row in of_family if row["metric"] == metric]
            page += ["", f"### {metric}", "", *metric_table(of_metric)]
    return "\n".join(page) + "\n"


def target_table(rows: list[dict[str, Any]]) -> list[str]:
    """What was to be reached, what was, and what upstream does."""
    table = ["| | target | Chiasm | | upstream |", "|---|---|---|---|---|"]
    for target in targets(rows):
        value = "not measured" if target.value is None else number(target.value)
        theirs = "" if target.upstream is None else number(target.upstream)
        table.append(f"| {target.what} | {target.bound} | {value} | {target.word} | {theirs} |")
    return table
