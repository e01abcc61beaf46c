"""``ata-gym policies``: the table of installed policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

import ata_policies
from ata_gym.cli.console import progress_bars, say, show
from ata_gym.utils.validation import unknown
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
        bool, typer.Option("--cost", help="Measure the processor time of a round of each, divided by that of ATA.")
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
    from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Table  # noqa: PLC0415 - the bench takes a second

    columns = {"policy": LEFT, "must know beforehand": 20, "assumes": 18, "what it does": WRAP}
    for word, env_id in ids.items():
        rows = [
            (name, found[name].knows, found[name].assumes, found[name].summary(), *_cost(costs, name))
            for name in names
            if found[name].env_id == env_id
        ]
        if rows:
            show(Table(f"{env_id} ({word})", columns | ({"cost": RIGHT} if cost else {}), rows))


def short(env_id: str) -> str:
    """The short name of an env.

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
        rows.append([*(fact.replace("|", r"\|") for fact in facts), *_cost(costs, name)])
    titles = (*COLUMNS, "cost") if costs else COLUMNS
    first, *others = [f"| {' | '.join(row)} |" for row in (titles, *rows)]
    return "\n".join([first, "|" + "---|" * len(titles), *others])


def _measured(names: list[str]) -> dict[str, float]:
    from ata_gym.bench.decision_cost import relative_costs  # noqa: PLC0415 - only here

    costs: dict[str, float] = {}
    with progress_bars({"cost": len(names)}) as progress:
        for name, ratio in relative_costs(names):
            costs[name] = ratio
            progress("cost", len(costs))
    return costs


def _cost(costs: Mapping[str, float], name: str) -> list[str]:
    """The cell with the cost of a policy, if there are any."""
    return [f"{costs[name]:.1f}"] if costs else []
