"""The rows of a run as tables: one per family and metric, who is measured beside whom."""

import json
from typing import Any


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


def metric_table(rows: list[dict[str, Any]]) -> list[str]:
    """The table of one metric."""
    whats = list(dict.fromkeys(row["what"] for row in rows))
    names = list(dict.fromkeys(name for row in rows for name in row["case"]))
    cases = list(dict.fromkeys(json.dumps(row["case"], sort_keys=True) for row in rows))
    compared = "upstream" in whats and any(what.startswith("chiasm") for what in whats)
    heads = [*names, *whats, *(["chiasm / upstream"] if compared else [])]
    table = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    for case in cases:
        values = json.loads(case)
        of_case = {
            row["what"]: row for row in rows if json.dumps(row["case"], sort_keys=True) == case
        }
        cells = [str(values.get(name, "")) for name in names]
        cells += [cell(of_case.get(what)) for what in whats]
        if compared:
            ours = [row for what, row in of_case.items() if what.startswith("chiasm")]
            theirs = of_case.get("upstream")
            ratio = ""
            if ours and theirs and theirs["median"]:
                ratio = number(ours[0]["median"] / theirs["median"])
            cells.append(ratio)
        table.append("| " + " | ".join(cells) + " |")
    return table


def markdown(machine: dict[str, Any], rows: list[dict[str, Any]]) -> str:
    """Everything as a page."""
    page = [
        f"# Chiasm beside ECCPUConnector, {machine['date'][:10]}",
        "",
        f"Commit {machine['commit'][:12]}{' with changes' if machine['changed'] else ''},"
        f" vLLM {machine['vllm'] or 'not measured'}, {machine['cpu']}, {machine['cores']} cores,"
        f" {machine['memory_gib']} GiB, Linux {machine['kernel']}, load"
        f" {machine['load_before'][0]:.1f} before and {machine['load_after'][0]:.1f} after"
        f"{', quick' if machine['quick'] else ''}.",
        "Medians of the rounds, in brackets the lowest and the highest.",
    ]
    for family in dict.fromkeys(row["family"] for row in rows):
        of_family = [row for row in rows if row["family"] == family]
        page += ["", f"## {family}"]
        for metric in dict.fromkeys(row["metric"] for row in of_family):
            of_metric = [row for row in of_family if row["metric"] == metric]
            page += ["", f"### {metric}", "", *metric_table(of_metric)]
    return "\n".join(page) + "\n"
