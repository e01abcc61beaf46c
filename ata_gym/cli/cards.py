"""A card on the terminal: name and summary, the facts in two columns, and the text below them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from textwrap import shorten

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from ata_gym.bench.page.docstrings import blocks, terms
from ata_gym.cli.console import narrow
from ata_gym.scenarios.card import Card


def show_card(card: Card) -> None:
    """Write a card to stdout, at most 100 columns wide."""
    facts = Table.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for fact, value in card.facts.items():
        facts.add_row(Text(fact), Text(value))
    parts: list[RenderableType] = [Text(card.name, style="bold"), Text(plain(card.summary)), "", facts, ""]
    parts += _paragraphs(card.text)
    narrow().print(Group(*parts, Text("to try it:", style="bold")))
    narrow().print(Text(f"  {card.command}"), soft_wrap=True)


def cut(text: str, width: int) -> str:
    """Text of at most so many columns, cut after a word.

    >>> cut("Catoni's estimator: a lower bound", 21)
    "Catoni's estimator: …"
    """
    return shorten(text, width, placeholder=" …", break_on_hyphens=False)


def _paragraphs(text: str) -> Iterator[RenderableType]:
    """What stands below the facts; paragraphs are filled anew, and examples stay as they are."""
    for kind, block in blocks(text):
        if kind == "title":
            yield Text(block, style="bold")
        elif kind == "code":
            yield from (Text(block, style="dim"), "")
        elif kind == "terms":
            for name, description in terms(block):
                yield from (Text(plain(name)), Padding(Text(plain(description)), (0, 0, 0, 4)))
            yield ""
        else:
            yield from (Text(plain(block)), "")


def plain(text: str) -> str:
    """Text without the marks of a docstring.

    >>> plain("As :class:`Uta`, by ``allocate``.")
    'As Uta, by allocate.'
    """
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
