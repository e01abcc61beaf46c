"""What a page holds, as data: no HTML and no colours; the template and the scripts set it."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from ata_gym.bench.report.table import Cell

Choice = Mapping[str, str]
"""For which scenario, price or policy something is shown; empty where there is nothing to choose."""

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Player(NamedTuple):
    """A policy, or a training method, that has a colour and can be switched off."""

    name: str
    kind: str = ""  # such as learner, oracle or baseline; may be empty


class Column(NamedTuple):
    """A column of a table."""

    title: str
    numeric: bool = True


class TableView(NamedTuple):
    """One table of a section."""

    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]  # the text of the first cell is the name of a player
    choice: Choice = _NOTHING
    best: Sequence[str] = ()  # players whose rows are in bold


class Tables(NamedTuple):
    """A section of tables of which one is shown at a time."""

    id: str
    title: str
    note: str  # what one sees, and which direction is good
    views: Sequence[TableView]


class View(NamedTuple):
    """One picture of a chart."""

    data: Mapping[str, Any]  # what the script of this kind of chart draws
    choice: Choice = _NOTHING


class Chart(NamedTuple):
    """A section with a picture."""

    id: str
    title: str  # what one sees, and which direction is good
    note: str
    kind: str  # ``curves``, ``front``, ``heat`` or ``spread``
    views: Sequence[View]
    settings: Mapping[str, Any] = _NOTHING  # titles of the axes, and whether they may be logarithmic


class Page(NamedTuple):
    """Everything on a page."""

    study: str
    title: str
    lead: str  # what was compared, and who is best in each game, a line each
    facts: Sequence[tuple[str, str]]
    players: Sequence[Player]
    sections: Sequence[Tables | Chart]
    cards: Sequence[Mapping[str, Any]]  # of the scenarios and the policies, as ``Card.to_data`` gives them
    command: Sequence[str]
    origin: Sequence[tuple[str, str]]  # Versions, commit and machine
    remarks: Sequence[str] = ()


def joined(pages: Mapping[str, Page]) -> Page:
    """One page of several scenarios, by their names, of which the reader chooses one; of a single one its own page.

    A section that only some of them have is shown for these.
    """
    first, *others = pages.values()
    if not others:
        return first
    sections: dict[str, Tables | Chart] = {}
    for name, page in pages.items():
        for section in page.sections:
            views: Any = [view._replace(choice={"scenario": name, **view.choice}) for view in section.views]
            before: Any = sections.get(section.id)
            sections[section.id] = section._replace(views=[*(before.views if before else ()), *views])
    cards = {card["name"]: card for page in pages.values() for card in page.cards}
    return first._replace(
        title=", ".join(pages), lead="\n".join(f"{name}\n{page.lead}" for name, page in pages.items()),
        facts=[(f"{name}: {what}", value) for name, page in pages.items() for what, value in page.facts],
        sections=list(sections.values()), cards=list(cards.values()),
        remarks=list(dict.fromkeys(remark for page in pages.values() for remark in page.remarks)),
    )  # fmt: skip
