"""What `--help` shows in a terminal of 80 columns."""

from collections.abc import Iterator
from itertools import pairwise

from tests.cli.chiasm import Chiasm

WIDTH = 80


def shown(chiasm: Chiasm, *words: str) -> str:
    """What a terminal of this width shows."""
    done = chiasm.run(*words, prefix=["env", f"COLUMNS={WIDTH}"])
    assert (done.code, done.err) == (0, ""), words
    return done.out


def commands(chiasm: Chiasm, *above: str) -> Iterator[list[str]]:
    """Every command, by the words that call it."""
    yield [*above]
    lines = iter(shown(chiasm, *above, "--help").splitlines())
    if "Commands:" not in lines:
        return
    for line in lines:
        if not line.strip():
            return
        # Deeper lines go on with what the line above says.
        if len(line) - len(line.lstrip()) == 2 and (name := line.split()[0]) != "help":
            yield from commands(chiasm, *above, name)


def torn(text: str) -> list[str]:
    """Lines that end although the next word would have fitted on them, in the middle of a text."""
    found = []
    lines = text.split("\nExamples:")[0].splitlines()
    for line, following in pairwise(lines):
        indents = [len(it) - len(it.lstrip()) for it in (line, following)]
        prose = line.strip() and following.strip() and line.lstrip()[:2] not in ("- ", "[d")
        goes_on = indents[0] == indents[1] and indents[0] in (0, 10)
        starts_anew = following.lstrip().startswith(("- ", "[default"))
        if not prose or not goes_on or starts_anew or line.endswith(":"):
            continue
        if len(line) + 1 + len(following.split()[0]) <= WIDTH:
            found.append(line)
    return found


def test_every_help_fits_80_columns_and_no_line_of_it_is_torn(chiasm: Chiasm) -> None:
    every = list(commands(chiasm))
    assert ["config", "check"] in every
    assert ["bench"] in every
    for words in every:
        for flag in ("--help", "-h"):
            text = shown(chiasm, *words, flag)
            wide = [line for line in text.splitlines() if len(line) > WIDTH]
            assert (words, flag, wide, torn(text)) == (words, flag, [], [])
