"""``ata-gym policies``, ``ata-gym methods`` and ``ata-gym scenarios``: what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer
from rich import box
from rich.table import Table

import ata_policies
from ata_gym.checks import unknown
from ata_gym.cli.console import progress_bars, say, show
from ata_gym.extras import require
from ata_gym.scenarios import scenario, scenario_names
from ata_policies.registry import env_ids

COLUMNS = ("policy", "plays", "source", "must know beforehand", "assumes", "constants")
"""What the table of policies says of each, beside its cost."""


def policies(
    env: Annotated[
        str | None, typer.Option(help="Only those of this env: allocation, race or dispatch, or its id.")
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="As the table of policies/README.md, with source and constants.")
    ] = False,
    cost: Annotated[
        bool, typer.Option("--cost", help="Measure what a round of each costs, over that of ATA beside it.")
    ] = False,
) -> None:
    """List the policies that are installed: what each must know beforehand, what it assumes, and what it does.

    The scenarios named icml2025 were published with the constants of the preprint: ata and ata-empirical. Those of
    the ICML version are in ata-icml and ata-empirical-icml.
    """
    ids = dict(zip(map(short, env_ids()), env_ids(), strict=True))
    if env is not None and env not in {*ids, *ids.values()}:
        raise unknown("env", env, ids)
    found = {name: ata_policies.load(name) for name in ata_policies.names()}
    names = [name for name in found if env is None or env in {found[name].env_id, short(found[name].env_id)}]
    costs = _measured(names) if cost else {}
    if markdown:
        say(markdown_table(names, costs))
        return
    for word, env_id in ids.items():
        played = [name for name in names if found[name].env_id == env_id]
        if not played:
            continue
        table = Table(box=box.SIMPLE_HEAD, title=f"{env_id} ({word})", title_justify="left")
        table.add_column("policy", no_wrap=True)
        for title, width in (("must know beforehand", 20), ("assumes", 18), ("what it does", None)):
            table.add_column(title, max_width=width)
        if cost:
            table.add_column("cost", justify="right")
        for name in played:
            policy = found[name]
            more = [_figures(costs[name])] if cost else []
            table.add_row(name, policy.knows, policy.assumes, policy.summary(), *more)
        show(table)


def short(env_id: str) -> str:
    """The word for an env: what tells it from the others.

    >>> short("ata_gym/TaskRace-v0")
    'race'
    """
    return env_id.partition("/Task")[2].partition("-")[0].lower()


def markdown_table(names: Iterable[str], costs: Mapping[str, float]) -> str:
    """The table of policies/README.md, with the costs where there are any.

    >>> print(markdown_table(["uta"], {"uta": 0.912}))
    | policy | plays | source | must know beforehand | assumes | constants | cost |
    |---|---|---|---|---|---|---|
    | uta | allocation | Maranjyan et al., ATA, ICML 2025 | nothing | nothing | none | 0.9 |
    """
    rows = []
    for name in names:
        policy = ata_policies.load(name)
        facts = (name, short(policy.env_id), policy.source, policy.knows, policy.assumes, policy.constants)
        rows.append([fact.replace("|", r"\|") for fact in facts] + ([_figures(costs[name])] if costs else []))
    titles = (*COLUMNS, "cost") if costs else COLUMNS
    first, *others = [f"| {' | '.join(row)} |" for row in (titles, *rows)]
    return "\n".join([first, "|" + "---|" * len(titles), *others])


def _measured(names: list[str]) -> dict[str, float]:
    from ata_gym.bench.costs import relative_costs  # noqa: PLC0415 - only here

    costs = {}
    with progress_bars({"cost": len(names)}) as progress:
        for name, ratio in relative_costs(names):
            costs[name] = ratio
            progress("cost", len(costs))
    return costs


def _figures(ratio: float) -> str:
    return f"{ratio:.1f}"


def methods() -> None:
    """List the training methods that `ata-gym train --methods` compares with the policies."""
    require("torch", extra="train", purpose="The command methods")
    from ata_gym.training.methods import METHODS  # noqa: PLC0415 - torch takes seconds to import

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("method", no_wrap=True)
    for title, width in (("what it does", 40), ("source", 20)):
        table.add_column(title, min_width=width)
    for name, method in METHODS.items():
        table.add_row(name, method.summary(), method.source)
    show(table)


def scenarios() -> None:
    """List the named worlds: n workers, B results a round, and the published hyperparameters alpha and eta.

    Below them those that are recorded: `ata-gym bench` and `track` make them of a file in the folder given as --data.
    """
    from ata_gym.bench.recordings import RECORDINGS  # noqa: PLC0415 - only here

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("scenario", no_wrap=True)
    for title in ("n", "B", "rounds", "alpha", "eta"):
        table.add_column(title, justify="right", no_wrap=True)
    table.add_column("task times")
    for name in scenario_names():
        world = scenario(name)
        numbers = (world.pool.n, world.budget, f"{world.horizon:,}", f"{world.alpha:.6g}", f"{world.eta:g}")
        table.add_row(name, *map(str, numbers), world.summary)
    show(table)
    recorded = Table(box=box.SIMPLE_HEAD)
    recorded.add_column("recorded", no_wrap=True)
    for title in ("B", "rounds"):
        recorded.add_column(title, justify="right", no_wrap=True)
    recorded.add_column("file", overflow="fold")
    recorded.add_column("task times")
    for name, recording in RECORDINGS.items():
        recorded.add_row(name, str(recording.budget), f"{recording.rounds:,}", recording.file, recording.summary)
    show(recorded)
