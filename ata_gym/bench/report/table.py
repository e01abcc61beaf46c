"""The form of every table: a title, columns and cells of text, for the terminal and as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any, NamedTuple

from rich import box, table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

LEFT, RIGHT, WRAP = -1, -2, 0  # alignments of columns: on one line, or wrapped; a positive number is the width


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    value: float | None = None  # rows are sorted by it; where it is None and the column is not ``numeric``, by the text
    shade: float | None = None  # from 0, good, to 1, bad: its background


@dataclass(frozen=True)
class Table:
    r"""Cells with a title; rich prints it.

    >>> print(markdown([Table("", {"name": LEFT, "price\nof one": RIGHT}, [("apple", "3"), ("fig", "12")])]).strip())
    | name  | price of one |
    |-------|--------------|
    | apple |            3 |
    | fig   |           12 |
    """

    title: str  # lines above the table, which may be wider than it, or empty
    columns: Mapping[str, int]  # the alignment of each column, by its title: ``LEFT``, ``RIGHT``, ``WRAP`` or a width
    rows: Sequence[Sequence[str]]  # an empty row stands for a line between groups

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show title and cells."""
        if self.title:
            yield Text(self.title, style="italic")
        yield self.cells(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)

    def cells(self, **form: Any) -> table.Table:
        """The table without its title, in a form that rich knows."""
        made = table.Table(**form)
        for title, how in self.columns.items():
            made.add_column(
                title, justify="right" if how == RIGHT else "left", no_wrap=how < 0,
                max_width=how if how > 0 else None, overflow="fold",
            )  # fmt: skip
        for row in self.rows:
            if row:
                made.add_row(*row)
            else:
                made.add_section()
        return made


def right(titles: Iterable[str]) -> dict[str, int]:
    """Columns of numbers."""
    return dict.fromkeys(titles, RIGHT)


def html(tables: Sequence[Table]) -> str:
    """Tables as HTML, for a notebook.

    >>> html([Table("", {"name": LEFT, "price": RIGHT}, [("a < b", "3")])])
    '<table><tr><th>name</th><th>price</th></tr><tr><td>a &lt; b</td><td>3</td></tr></table>'
    """
    parts = []
    for part in tables:
        rows = [("th", list(part.columns)), *(("td", row) for row in part.rows if row)]
        lines = ("".join(f"<{tag}>{escape(cell)}</{tag}>" for cell in cells) for tag, cells in rows)
        title = f"<p><i>{escape(part.title)}</i></p>" if part.title else ""
        parts.append(title + "<table>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>")
    return "".join(parts).replace("\n", "<br>")


def markdown(tables: Sequence[Table]) -> str:
    """Tables as Markdown, with their titles above them."""
    text = StringIO()
    console = Console(file=text, width=500, force_terminal=False, color_system=None)
    for part in tables:
        cells = part.cells(box=box.MARKDOWN)
        for column in cells.columns:
            column.header = str(column.header).replace("\n", " ")
        console.print(part.title, cells, sep="\n", highlight=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
