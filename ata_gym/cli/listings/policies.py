"""``ata-gym policies``: the installed policies as a list, and the card of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Annotated

import typer

import ata_policies
from ata_gym.bench.progress import progress_bars
from ata_gym.cli import completion, options
from ata_gym.cli.cards import cut, plain, show_card
from ata_gym.cli.console import list_width, say, say_json, show
from ata_gym.utils.validation import unknown
from ata_policies.card import policy_card
from ata_policies.registry import PolicyMaker, ids_by_name, short_name

COLUMNS = ("policy", "plays", "source", "must know beforehand", "assumes", "constants")
"""The columns of the table of policies, beside the cost."""

_KNOWS = len("the distributions")
"""Characters of what a policy must know, in a list."""


def policies(
    name: Annotated[
        str | None,
        typer.Argument(help="A policy to show in full; also package.module:Class.", autocompletion=completion.policy),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="List only the policies of this env: allocation, race or dispatch, or its id.",
            autocompletion=completion.env,
        ),
    ] = None,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Write the table of policies/README.md, with source and constants.")
    ] = False,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost", help="Measure the processor time that each policy needs for a round, divided by that of ATA."
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """List the policies, or show all there is to say of one.

    A policy that must know nothing beforehand is a learner; the others are set beside it to see what knowledge is
    worth. The scenarios named icml2025 were published with the constants of the preprint: ata and ata-empirical. Those
    of the ICML version are in ata-icml and ata-empirical-icml.

    ```
    ata-gym policies
    ata-gym policies distribution-learner
    ata-gym policies --env race --json
    ```
    """
    if name is not None:
        if env is not None or markdown or cost:
            raise ValueError("--env, --markdown and --cost are for the list: give them without a name")
        if json:
            say_json(policy_card(name).to_data())
            return
        show_card(policy_card(name))
        return
    ids = ids_by_name()
    if env is not None and env not in {*ids, *ids.values()}:
        raise unknown("env", env, ids)
    found = {name: ata_policies.load(name) for name in ata_policies.names()}
    found = {name: policy for name, policy in found.items() if env in {None, policy.env_id, short_name(policy.env_id)}}
    costs = _measured(list(found)) if cost else {}
    if json:
        say_json([policy_card(name).to_data() | {"cost": costs.get(name)} for name in found])
    elif markdown:
        say(markdown_table(found, costs))
    else:
        _show(found, ids, costs)


def _show(found: Mapping[str, PolicyMaker], ids: Mapping[str, str], costs: Mapping[str, float]) -> None:
    """Write a table for each env, with a line for each policy."""
    from ata_gym.bench.report.table import LEFT, RIGHT, Table  # noqa: PLC0415 - the bench takes a second

    columns = {"policy": LEFT, "must know": LEFT, "what it does": LEFT} | ({"cost": RIGHT} if costs else {})
    for word, env_id in ids.items():
        ours = {name: policy for name, policy in found.items() if policy.env_id == env_id}
        if not ours:
            continue
        knows = {name: cut(re.split("[;,]", policy.knows)[0], _KNOWS) for name, policy in ours.items()}
        taken = max(map(len, ours)) + max(*map(len, knows.values()), len("must know"))
        left = list_width() - taken - 2 * len(columns) - 4 * bool(costs)
        rows = [
            (name, knows[name], cut(plain(policy.summary()), left), *_cost(costs, name))
            for name, policy in ours.items()
        ]
        show(Table(f"{env_id} ({word})", columns, rows), width=list_width())
    say("One of them in full: ata-gym policies NAME")


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
