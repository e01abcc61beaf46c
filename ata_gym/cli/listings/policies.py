"""``ata-gym policies``: the installed policies as a list, and the card of one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated

import typer

import ata_policies
from ata_gym.bench.progress import progress_bars
from ata_gym.cli import completion, options
from ata_gym.cli.cards import cut, plain, show_card
from ata_gym.cli.console import list_width, say, say_json, show
from ata_gym.scenarios.card import Card
from ata_gym.utils.validation import unknown
from ata_policies.card import policy_card
from ata_policies.registry import ids_by_name

_FACTS = ("source", "must know beforehand", "assumes", "constants")
"""The facts of a card that the table of policies/README.md has."""

_KNOWS = len("the distributions")  # characters of what a policy must know, in a list


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
    cards = [policy_card(name) for name in ata_policies.names()]
    cards = [card for card in cards if env in {None, _plays(card), ids[_plays(card)]}]
    costs = _measured([card.name for card in cards]) if cost else {}
    if json:
        say_json([card.to_data() | {"cost": costs.get(card.name)} for card in cards])
    elif markdown:
        say(markdown_table(cards, costs))
    else:
        _show(cards, ids, costs)


def _plays(card: Card) -> str:
    """The env of a policy, by its short name."""
    return card.facts["plays"].partition(",")[0]


def _show(cards: Sequence[Card], ids: Mapping[str, str], costs: Mapping[str, float]) -> None:
    """Write a table for each env, with a line for each policy."""
    from ata_gym.bench.report.table import LEFT, RIGHT, Table  # noqa: PLC0415 - the bench takes a second

    columns = {"policy": LEFT, "must know": LEFT, "what it does": LEFT} | ({"cost": RIGHT} if costs else {})
    for word, env_id in ids.items():
        ours = [card for card in cards if _plays(card) == word]
        if not ours:
            continue
        knows = [cut(re.split("[;,]", card.facts["must know beforehand"])[0], _KNOWS) for card in ours]
        taken = max(len(card.name) for card in ours) + max(*map(len, knows), len("must know"))
        left = list_width() - taken - 2 * len(columns) - 4 * bool(costs)
        rows = [
            (card.name, known, cut(plain(card.summary), left), *_cost(costs, card.name))
            for card, known in zip(ours, knows, strict=True)
        ]
        show(Table(f"{env_id} ({word})", columns, rows), width=list_width())
    say("One of them in full: ata-gym policies NAME")


def markdown_table(cards: Iterable[Card], costs: Mapping[str, float]) -> str:
    """The table of policies/README.md, with the costs where there are any.

    >>> print(markdown_table([policy_card("uta")], {"uta": 0.912}))
    | policy | plays | source | must know beforehand | assumes | constants | cost |
    |---|---|---|---|---|---|---|
    | uta | allocation | Maranjyan et al., ATA, ICML 2025 | nothing | nothing | none | 0.9 |
    """
    rows = []
    for card in cards:
        facts = (card.name, _plays(card), *(card.facts.get(fact, "") for fact in _FACTS))
        rows.append([*(fact.replace("|", r"\|") for fact in facts), *_cost(costs, card.name)])
    titles = ("policy", "plays", *_FACTS, *(("cost",) if costs else ()))
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
