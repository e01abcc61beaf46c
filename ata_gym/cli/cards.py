"""A card on the terminal: name and summary, the facts in two columns, and the text below them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import shorten

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ata_gym.cli.console import narrow
from ata_gym.utils.card import Card


def show_card(card: Card) -> None:
    """Write a card to stdout, at most 100 columns wide."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for fact, value in card.facts.items():
        facts.add_row(Text(fact), Text(value))
    parts: list[RenderableType] = [Text(card.name, style="bold"), Text(plain(card.summary)), "", facts, ""]
    for paragraph in _paragraphs(card.text):
        parts += [paragraph] if isinstance(paragraph, Text) and paragraph.style == "bold" else [paragraph, ""]
    narrow().print(Group(*parts, Text("to try it:", style="bold")))
    narrow().print(Text(f"  {card.command}"), soft_wrap=True)


def cut(text: str, width: int) -> str:
    """Text of at most so many columns, cut after a word.

    >>> cut("Catoni's estimator: a lower bound", 21)
    "Catoni's estimator: …"
    """
    return shorten(text, width, placeholder=" …", break_on_hyphens=False)


def _paragraphs(text: str) -> Iterator[RenderableType]:
    """The paragraphs of a docstring in NumPy's form, whose lines may be filled anew; examples stay as they are."""
    for block in filter(str.strip, re.split(r"\n\s*\n", text)):
        lines = block.splitlines()
        if len(lines) > 1 and re.fullmatch(r"-+", lines[1].strip()):
            yield Text(lines[0], style="bold")
            lines = lines[2:]
        if any(line.lstrip().startswith(">>>") for line in lines):
            yield Text("\n".join(lines), style="dim")
            continue
        yield Group(*(Padding(Text(plain(words)), (0, 0, 0, depth)) for depth, words in _filled(lines)))


def _filled(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Neighbouring lines of the same depth as one, each with its depth; an item of a list as one with its end."""
    depth, words = 0, ""
    for line in lines:
        here = len(line) - len(line.lstrip())
        item = words.startswith("- ") and here == depth + 2
        here = depth if item else here
        if words and (here != depth or line.lstrip().startswith("- ")):
            yield depth, words
            words = ""
        depth, words = here, f"{words} {line.strip()}".strip()
    if words:
        yield depth, words


def plain(text: str) -> str:
    """Text without the marks of a docstring.

    >>> plain("As :class:`Uta`, by ``allocate``.")
    'As Uta, by allocate.'
    """
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
