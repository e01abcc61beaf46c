"""The form of every table: a title, columns, and cells of text, for terminals and Markdown."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from io import StringIO
from typing import Any, NamedTuple

from rich import box, table
from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

from ata_gym.utils.extras import require

# The alignments of columns. A positive number is a width, at which the text is wrapped.
LEFT = -1  # on one line
RIGHT = -2  # on one line
WRAP = 0  # at the left, wrapped


class Cell(NamedTuple):
    """A cell of a table."""

    text: str
    value: float | None = None
    """The number by which rows are sorted.

    Where it is None and the column is not ``numeric``, they are sorted by the text.
    """
    shade: float | None = None
    """The shade of its background, from 0 (good) to 1 (bad); None for none."""


@dataclass(frozen=True)
class Table:
    r"""Cells with a title; rich prints it.

    Example:
        >>> columns = {"name": LEFT, "price\nof one": RIGHT}
        >>> table = Table("", columns, [("apple", "3"), ("fig", "12")])
        >>> print(markdown([table]).strip())
        | name  | price of one |
        |-------|--------------|
        | apple |            3 |
        | fig   |           12 |
    """

    title: str
    """Lines above the table, which may be wider than the table; may be empty."""
    columns: Mapping[str, int]
    """The alignment of each column, by its title: ``LEFT``, ``RIGHT``, ``WRAP`` or a width."""
    rows: Sequence[Sequence[str]]
    """An empty row stands for a line between groups."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Show title and cells."""
        if self.title:
            yield Text(self.title, style="italic")
        yield self.cells(box=box.SIMPLE_HEAD, pad_edge=False, collapse_padding=True)

    def cells(self, **form: Any) -> table.Table:
        """Return the table of rich without a title; ``form`` are the arguments that make it."""
        rich_table = table.Table(**form)
        for title, alignment in self.columns.items():
            if alignment == RIGHT:
                rich_table.add_column(title, justify="right", no_wrap=True, overflow="fold")
            elif alignment == LEFT:
                rich_table.add_column(title, no_wrap=True, overflow="fold")
            elif alignment == WRAP:
                rich_table.add_column(title, overflow="fold")
            else:
                rich_table.add_column(title, max_width=alignment, overflow="fold")
        for row in self.rows:
            if row:
                rich_table.add_row(*row)
            else:
                rich_table.add_section()
        return rich_table


def right(titles: Iterable[str]) -> dict[str, int]:
    """Return columns of numbers with these titles."""
    return dict.fromkeys(titles, RIGHT)


def html(tables: Sequence[Table]) -> str:
    """Return tables as HTML, for a notebook.

    Example:
        >>> html([Table("", {"name": LEFT, "price": RIGHT}, [("a < b", "3")])])
        '<table><tr><th>name</th><th>price</th></tr><tr><td>a &lt; b</td><td>3</td></tr></table>'
    """
    parts = []
    for part in tables:
        if part.title:
            parts.append(f"<p><i>{escape(part.title)}</i></p>")
        parts.append("<table>")
        parts.append(_html_row("th", part.columns))
        parts += [_html_row("td", row) for row in part.rows if row]
        parts.append("</table>")
    return "".join(parts).replace("\n", "<br>")


def _html_row(tag: str, cells: Iterable[str]) -> str:
    texts = [f"<{tag}>{escape(cell)}</{tag}>" for cell in cells]
    return f"<tr>{''.join(texts)}</tr>"


def latex(tables: Sequence[Table]) -> str:
    r"""Return tables as LaTeX, each a ``tabular`` with the rules of booktabs.

    A comment above each has the title. Caption, label and place are the paper's.

    Raises:
        MissingExtraError: If tabulate is not installed.

    Example:
        >>> columns = {"name": LEFT, "price\n(1e3)": RIGHT}
        >>> print(latex([Table("prices", columns, [("a_b", "3.1 ± 0.2")])]))
        % prices
        \begin{tabular}{lr}
        \toprule
         name   &   price ($10^{3}$) \\
        \midrule
         a\_b    &     3.1 $\pm$ 0.2 \\
        \bottomrule
        \end{tabular}
        <BLANKLINE>
    """
    tabulate: Any = require("tabulate", extra="bench", purpose="A table as LaTeX").tabulate
    parts = []
    for part in tables:
        comments = "".join(f"% {line}\n" for line in part.title.splitlines())
        text = tabulate(
            [row for row in part.rows if row],
            [title.replace("\n", " ") for title in part.columns],
            tablefmt="latex_booktabs",
            disable_numparse=True,
            colalign=["right" if kind == RIGHT else "left" for kind in part.columns.values()],
        )
        text = re.sub(r"\(1e(-?\d+)\)", r"($10^{\1}$)", text.replace("±", r"$\pm$"))
        parts.append(f"{comments}{text}\n")
    return "\n".join(parts)


def markdown(tables: Sequence[Table]) -> str:
    """Return tables as Markdown, with their titles above them."""
    text = StringIO()
    # In a notebook rich would otherwise show what it prints, in place of writing it.
    console = Console(
        file=text,
        width=500,
        force_terminal=False,
        force_jupyter=False,
        color_system=None,
    )
    for part in tables:
        cells = part.cells(box=box.MARKDOWN)
        # A cell of Markdown has one line.
        for column in cells.columns:
            column.header = str(column.header).replace("\n", " ")
        console.print(part.title, cells, sep="\n", highlight=False)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines()) + "\n"
