"""What a page holds, as data, without HTML and colours; the template and the scripts show it."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ata_gym.bench.report.headline import IN_BRACKETS
from ata_gym.bench.report.table import RIGHT, Cell, Table

Choice = Mapping[str, str]
"""For which scenario, price or policy something is shown; empty where there is no choice."""

# A mapping proxy could not be pickled.
_NOTHING: Mapping[str, Any] = {}


class Series(NamedTuple):
    """A policy, or a training method, that has a colour and can be switched off."""

    name: str
    kind: str = ""
    """Such as learner, oracle or baseline; may be empty."""


class Column(NamedTuple):
    """A column of a table."""

    title: str
    numeric: bool = True
    wide: bool = False
    """Whether it is shown only where there is room, and not on a telephone."""


class TableView(NamedTuple):
    """One table of a section."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    """The text of the first cell is the name of a policy or method."""
    choice: Choice = _NOTHING
    best: Sequence[str] = ()
    """The names of the rows in bold."""


class Tables(NamedTuple):
    """A section of tables of which one is shown at a time."""

    id: str
    title: str
    note: str
    """What one sees, and which direction is good."""
    views: Sequence[TableView]


class View(NamedTuple):
    """One picture of a chart."""

    data: Mapping[str, Any]
    """What the script of this kind of chart draws."""
    choice: Choice = _NOTHING


class Chart(NamedTuple):
    """A section with a picture."""

    id: str
    title: str
    """What one sees, and which direction is good."""
    note: str
    kind: str
    """``curves``, ``front``, ``heat``, ``times`` or ``spread``."""
    views: Sequence[View]
    settings: Mapping[str, Any] = _NOTHING
    """The titles of the axes, whether they are logarithmic, and what else the script needs."""


class Paragraph(NamedTuple):
    """A sentence of the lead, and what belongs to it."""

    text: str
    details: Sequence[str]
    """The lines below it."""
    kind: str
    """``scope`` if what follows is of it, ``intervals`` if it says what intervals are, or empty."""


class Page(NamedTuple):
    """Everything on a page."""

    study: str
    title: str
    lead: str
    """What was compared, and who is best in each env, a line each; see ``paragraphs``."""
    facts: Sequence[tuple[str, str]]
    """Sizes, each with its name first."""
    series: Sequence[Series]
    sections: Sequence[Tables | Chart]
    cards: Sequence[Mapping[str, Any]]
    """The cards of the scenarios and the policies, as ``Card.to_data`` returns them."""
    command: Sequence[str]
    """The words of the command that made the results."""
    origin: Sequence[tuple[str, str]]
    """Versions, commit and machine, each with its name first."""
    remarks: Sequence[str] = ()
    """Sentences that a reader should know."""


def paragraphs(lead: str) -> list[Paragraph]:
    r"""Return the paragraphs of a lead, in which a line that is indented belongs to the one above.

    Example:
        >>> for paragraph in paragraphs("Price 0:\nmine is best.\n  compared with uta: as much"):
        ...     print(*paragraph, sep="|")
        Price 0:|[]|scope
        mine is best.|['compared with uta: as much']|
    """
    found = list[Paragraph]()
    for line in lead.splitlines():
        if line.startswith(" ") and found:
            last = found[-1]
            found[-1] = Paragraph(last.text, [*last.details, line.strip()], "")
        elif line.endswith(":"):
            found.append(Paragraph(line, [], "scope"))
        elif line.startswith(IN_BRACKETS):
            found.append(Paragraph(line, [], "intervals"))
        else:
            found.append(Paragraph(line, [], ""))
    return found


def section_of(name: str, table: Table, note: str) -> Tables:
    """Return the section of a table for terminals, whose title is the first line of the table's.

    Args:
        name: The id of the section.
        table: The table; rows that are empty are left out.
        note: What one sees.
    """
    columns = [
        Column(title.replace("\n", " "), alignment == RIGHT)
        for title, alignment in table.columns.items()
    ]
    rows = [[*map(Cell, row)] for row in table.rows if row]
    return Tables(name, table.title.partition("\n")[0], note, [TableView(columns, rows)])


def joined(pages: Mapping[str, Page]) -> Page:
    """Join the pages of several scenarios into one, on which the reader chooses a scenario.

    A section that only some of them have is shown for these. A single page stays as it is.

    Args:
        pages: The page of each scenario, by the scenario's name.
    """
    first, *further_pages = pages.values()
    if not further_pages:
        return first
    sections: dict[str, Tables | Chart] = {}
    cards: dict[str, Any] = {}
    leads = []
    facts = []
    # Scenarios often share a remark, which is shown once.
    remarks: dict[str, None] = {}
    for name, page in pages.items():
        leads.append(f"{name}:\n{page.lead}")
        facts += [(f"{name}: {fact}", value) for fact, value in page.facts]
        cards |= {card["name"]: card for card in page.cards}
        remarks |= dict.fromkeys(page.remarks)
        for section in page.sections:
            views: Any = [
                view._replace(choice={"scenario": name, **view.choice}) for view in section.views
            ]
            earlier_section: Any = sections.get(section.id)
            if earlier_section:
                views = [*earlier_section.views, *views]
            sections[section.id] = section._replace(views=views)
    return first._replace(
        title=", ".join(pages),
        lead="\n".join(leads),
        facts=facts,
        sections=list(sections.values()),
        cards=list(cards.values()),
        remarks=list(remarks),
    )
