"""A picture of one family: a bar for each figure, on a logarithmic scale, grouped by case.

Plain SVG, written here: nobody has to install anything to see a result.
"""

import math
from html import escape
from typing import Any

BAR = 14
GAP = 8
LABEL = 330
WIDTH = 620
COLOURS = {"upstream": "#b0413e", "chiasm": "#2a6f97"}
BOUND = "#9a9a9a"


def colour(what: str) -> str:
    for start, value in COLOURS.items():
        if what.startswith(start):
            return value
    return BOUND


def bars(rows: list[dict[str, Any]], top: int) -> tuple[list[str], int]:
    """The bars of one metric from this height on, and where they end."""
    values = [row["median"] for row in rows if row["median"] > 0]
    if not values:
        return [], top
    low = math.floor(math.log10(min(values))) - 0.2
    high = max(math.log10(max(values)), low + 1)
    out, at, case_before = [], top, None
    for row in rows:
        case = ", ".join(f"{name} {value}" for name, value in row["case"].items())
        if case != case_before:
            at += GAP
            out.append(f'<text x="4" y="{at + 11}" class="case">{escape(case)}</text>')
            at += BAR + 2
            case_before = case
        share = (math.log10(row["median"]) - low) / (high - low) if row["median"] > 0 else 0
        length = max(1, round(share * WIDTH))
        out.append(f'<text x="{LABEL - 6}" y="{at + 11}" class="who">{escape(row["what"])}</text>')
        out.append(
            f'<rect x="{LABEL}" y="{at}" width="{length}" height="{BAR}"'
            f' fill="{colour(row["what"])}"/>'
        )
        value = f"{row['median']:.4g}"
        out.append(f'<text x="{LABEL + length + 5}" y="{at + 11}">{value}</text>')
        at += BAR + 2
    return out, at


def picture(family: str, rows: list[dict[str, Any]]) -> str:
    """The family as SVG."""
    out, at = [f'<text x="4" y="20" class="head">{escape(family)}</text>'], 26
    for metric in dict.fromkeys(row["metric"] for row in rows):
        at += 24
        out.append(f'<text x="4" y="{at}" class="metric">{escape(metric)} (logarithmic)</text>')
        ordered = sorted(
            (row for row in rows if row["metric"] == metric), key=lambda row: str(row["case"])
        )
        drawn, at = bars(ordered, at)
        out += drawn
    style = (
        "text{font:12px sans-serif;fill:#222}.head{font-size:18px;font-weight:bold}"
        ".metric{font-size:14px;font-weight:bold}.case{fill:#555}.who{text-anchor:end}"
    )
    size = f'width="{LABEL + WIDTH + 100}" height="{at + 20}"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size}><style>{style}</style>'
    return "\n".join([head, '<rect width="100%" height="100%" fill="white"/>', *out, "</svg>", ""])
