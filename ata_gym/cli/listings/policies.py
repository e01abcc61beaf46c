"""``ata-gym policies``: the table of installed policies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

import ata_policies
from ata_gym.cli.console import progress_bars, say, show
from ata_gym.utils.validation import unknown
from ata_policies.registry import ids_by_name, short_name

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
    ids = ids_by_name()
    if env is not None and env not in {*ids, *ids.values()}:
        raise unknown("env", env, ids)
    found = {name: ata_policies.load(name) for name in ata_policies.names()}
    found = {name: policy for name, policy in found.items() if env in {None, policy.env_id, short_name(policy.env_id)}}
    costs = _measured(list(found)) if cost else {}
    if markdown:
        say(markdown_table(found, costs))
        return
    from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Table  # noqa: PLC0415 - the bench takes a second

    columns = {"policy": LEFT, "must know beforehand": 20, "assumes": 18, "what it does": WRAP}
    columns |= {"cost": RIGHT} if cost else {}
    for word, env_id in ids.items():
        ours = {name: policy for name, policy in found.items() if policy.env_id == env_id}
        if ours:
            rows = [(name, p.knows, p.assumes, p.summary(), *_cost(costs, name)) for name, p in ours.items()]
            show(Table(f"{env_id} ({word})", columns, rows))


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
        facts = (name, short_name(policy.env_id), policy.source, policy.knows, policy.assumes, policy.constants)
        rows.append([*(fact.replace("|", r"\|") for fact in facts), *_cost(costs, name)])
    titles = (*COLUMNS, "cost") if costs else COLUMNS
    first, *others = [f"| {' | '.join(row)} |" for row in (titles, *rows)]
    return "\n".join([first, "|" + "---|" * len(titles), *others])


def _measured(names: list[str]) -> dict[str, float]:
    from ata_gym.bench.decision_cost import relative_cost  # noqa: PLC0415 - only here

    costs: dict[str, float] = {}
    with progress_bars({"cost": len(names)}) as progress:
        for name in names:
            costs[name] = relative_cost(name)
            progress("cost", len(costs))
    return costs


def _cost(costs: Mapping[str, float], name: str) -> list[str]:
    """The cell with the cost of a policy, if there are any."""
    return [f"{costs[name]:.1f}"] if costs else []
