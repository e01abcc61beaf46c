"""``ata-gym scenarios``: the named and recorded scenarios as a list, and the card of one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated

import typer

from ata_gym.cli import completion, options
from ata_gym.cli.cards import cut, show_card
from ata_gym.cli.console import list_width, say, say_json, show
from ata_gym.scenarios import SCENARIO_GROUPS, scenario, scenario_names
from ata_gym.scenarios.card import scenario_card, workers
from ata_gym.scenarios.recorded import RECORDINGS, find_scenario


def scenarios(
    name: Annotated[
        str | None, typer.Argument(help="A scenario to show in full.", autocompletion=completion.scenario)
    ] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List the scenarios, or show all there is to say of one.

    n is the number of workers, B the number of results in a round. The recorded scenarios, below the others, are read
    from a file in the folder given as --data.

    ```
    ata-gym scenarios
    ata-gym scenarios icml2025-cifar100
    ata-gym scenarios alibaba-4 --data recordings
    ```
    """
    if name is not None:
        card = scenario_card(find_scenario(name, data))
        if json:
            say_json(card.to_data())
            return
        show_card(card)
        return
    if data is not None:
        raise ValueError("--data goes with the name of a recorded scenario")
    if json:
        named = [scenario_card(scenario(name)).to_data() for name in scenario_names()]
        recorded = [
            {"name": name, "summary": one.summary, "file": one.file, "budget": one.budget, "rounds": one.rounds}
            for name, one in RECORDINGS.items()
        ]
        say_json({"scenarios": named, "recorded": recorded})
        return
    for title, names in SCENARIO_GROUPS.items():
        found = [scenario(name) for name in names]
        _show(title, [(s.name, workers(s), str(s.budget), _count(s.horizon), s.summary) for s in found])
    rows = [(name, "", str(r.budget), _count(r.rounds), r.summary) for name, r in RECORDINGS.items()]
    _show("recorded: made of a file in the folder --data; without it the name tells which", rows)
    say("One of them in full: ata-gym scenarios NAME")


def _show(title: str, rows: Sequence[tuple[str, str, str, str, str]]) -> None:
    """Write a line for each row; its last cell is cut so that the line fits."""
    from ata_gym.bench.report.table import LEFT, Table, right  # noqa: PLC0415 - the bench takes a second

    columns = {"scenario": LEFT, **right(("n", "B", "rounds")), "task times": LEFT}
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)][:-1]
    left = list_width() - sum(widths) - 2 * len(columns)
    lines = [(*row[:-1], _beginning(row[-1], left)) for row in rows]
    show(Table(title, columns, lines), width=list_width())


def _beginning(summary: str, width: int) -> str:
    """A summary of at most ``width`` columns: its first part is left out before what follows it.

    >>> _beginning("c + Exp(c), c = 29 i; all speeds permuted every 20,000 rounds", 30)
    '… all speeds permuted every …'
    """
    _, *added = re.split(r"(?<=\S)[;:] ", summary, maxsplit=1)
    return cut(f"… {added[0]}" if len(summary) > width and added else summary, width)


def _count(rounds: int | None) -> str:
    """A number of rounds, in short form where that loses no digit.

    >>> _count(750_000), _count(4_000_000), _count(2_182), _count(None)
    ('750k', '4M', '2182', '-')
    """
    if rounds is None:
        return "-"
    for unit, size in (("M", 1_000_000), ("k", 1_000)):
        if rounds % size == 0:
            return f"{rounds // size}{unit}"
    return str(rounds)
