"""Commands that list what there is as a table, or show one entry in full as a card."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import LIST_WIDTH, WIDTH, list_width, say, say_json, show
from ata_gym.utils.extras import require

if TYPE_CHECKING:
    from rich.console import RenderableType

    from ata_gym.scenarios.card import Card


def policies(
    name: Annotated[
        str | None,
        options.named_policy(help="A policy to show in full, or package.module:Class."),
    ] = None,
    env: Annotated[
        str | None,
        typer.Option(
            help="List only policies of this env: allocation, race or dispatch, or its id.",
            autocompletion=options.complete_env,
        ),
    ] = None,
    all_: Annotated[
        bool,
        typer.Option("--all", help="List all policies, or all of --env, by what they do."),
    ] = False,
    cost: Annotated[
        bool,
        typer.Option(
            "--cost",
            help="Measure the milliseconds of NAME's decisions, by the number of workers.",
        ),
    ] = False,
    json: options.Json = False,
) -> None:
    """List the policies, or show all there is to say of one.

    The recommended policies are listed, with what each is for; with --all all policies are, with
    what each does. --env and --json go with both lists.

    A policy that must know nothing beforehand is a learner; the others are there to compare, and
    show what knowledge is worth. The scenarios named icml2025 were published with the constants of
    the preprint: ata and ata-empirical. Those of the ICML version are in ata-icml and
    ata-empirical-icml.

    ```
    ata-gym policies
    ata-gym policies --all
    ata-gym policies distribution-learner
    ata-gym policies distribution-learner --cost
    ata-gym policies --env race --all --json
    ```
    """
    import ata_policies
    from ata_gym.utils.validation import unknown
    from ata_policies.card import policy_card
    from ata_policies.presets import PRESETS
    from ata_policies.registry import RECOMMENDED, ids_by_name

    if name is not None:
        for option, requested in (("--env", env is not None), ("--all", all_)):
            if requested:
                raise ValueError(f"{option} is for the list: give it without a name")
        if cost:
            _show_times(name, json)
        else:
            _show_card(policy_card(name), json)
        return
    if cost:
        raise ValueError("--cost measures one policy: give its name")
    ids = ids_by_name()
    if env is not None and env not in {*ids, *ids.values()}:
        raise unknown("env", env, ids)
    cards = [policy_card(name) for name in ata_policies.names()]
    cards = [card for card in cards if env in {None, _plays(card), ids[_plays(card)]}]
    recommended = [name for group in RECOMMENDED for name in group]
    if all_:
        listed = cards
    else:
        by_name = {card.name: card for card in cards}
        # Policies of other packages were installed to be seen.
        installed = [name for name in by_name if name not in PRESETS]
        listed = [by_name[name] for name in (*recommended, *installed) if name in by_name]
    if json:
        say_json([card.to_data() for card in listed])
    elif all_:
        _show_policies(listed)
        say("One of them in full: ata-gym policies NAME")
    else:
        _show_recommended(listed)
        if env is None:
            option = ""
        else:
            option = f" --env {env}"
        say("One of them in full: ata-gym policies NAME")
        say(f"{len(cards) - len(listed)} others: ata-gym policies{option} --all")


def _show_recommended(cards: Sequence[Card]) -> None:
    """Whom each recommended policy is for, in groups, and what other packages' policies do."""
    from ata_policies.registry import DEFAULTS, RECOMMENDED

    rows: list[tuple[str, ...]] = []
    for group in RECOMMENDED:
        group_rows = [(card.name, group[card.name]) for card in cards if card.name in group]
        if rows and group_rows:
            # a line between two groups
            rows.append(())
        rows += group_rows
    known = {name for group in RECOMMENDED for name in group}
    installed = [(card.name, plain(card.summary)) for card in cards if card.name not in known]
    if installed:
        rows += [(), *installed]
    *first, last = DEFAULTS.values()
    title = f"The name default means {', '.join(first)} or {last}, by the env."
    _show_list(title, ["policy", "take it if you"], rows)


def _show_policies(cards: Sequence[Card]) -> None:
    """For each env a table of its learners, and one of its policies that know more."""
    from ata_policies.registry import default_name, ids_by_name

    for short_name, env_id in ids_by_name().items():
        for learns in (True, False):
            rows = []
            for card in (candidate for candidate in cards if _plays(candidate) == short_name):
                knowledge = card.facts["must know beforehand"]
                if learns != knowledge.startswith("nothing"):
                    continue
                about = plain(card.summary)
                if card.name == default_name(env_id):
                    about = f"THE DEFAULT. {about}"
                if not learns:
                    about += f" Knows {knowledge}."
                rows.append((card.name, about))
            if rows:
                if learns:
                    suffix = ""
                else:
                    suffix = ", with knowledge that others must learn"
                _show_list(f"{env_id} ({short_name}){suffix}", ["policy", "what it does"], rows)


def _plays(card: Card) -> str:
    """The short name of the env that the policy of a card plays."""
    return card.facts["plays"].partition(",")[0]


def _show_times(name: str, json: bool) -> None:
    from ata_gym.bench.decision_cost import FIRST_ROUNDS, decision_times, timed_scenarios
    from ata_gym.bench.report.table import LEFT, Table, right

    times = {
        title: decision_times(name, scenario, FIRST_ROUNDS)
        for title, scenario in timed_scenarios().items()
    }
    if json:
        say_json({title: cost._asdict() for title, cost in times.items()})
        return
    rows = [
        (title, *(f"{milliseconds:.3g}" for milliseconds in cost)) for title, cost in times.items()
    ]
    about = (
        f"{name}: milliseconds of processor time of a decision in the first {FIRST_ROUNDS} rounds,"
        " one row"
    )
    show(Table(about, {"workers": LEFT, **right(("mean", "worst"))}, rows))


def scenarios(
    name: Annotated[str | None, options.named_scenario(help="A scenario to show in full.")] = None,
    data: options.Data = None,
    json: options.Json = False,
) -> None:
    """List the scenarios, or show all there is to say of one.

    n is the number of workers, B the number of results in a round. The recorded scenarios, below
    the others, are read from a file in the folder given as --data.

    ```
    ata-gym scenarios
    ata-gym scenarios icml2025-cifar100
    ata-gym scenarios alibaba-4 --data recordings
    ```
    """
    from ata_gym.scenarios import SCENARIO_GROUPS, scenario, scenario_names
    from ata_gym.scenarios.card import scenario_card, workers
    from ata_gym.scenarios.recorded import RECORDINGS, find_scenario
    from ata_policies.card import full_scenario_card

    if name is not None:
        _show_card(full_scenario_card(find_scenario(name, data)), json)
        return
    if data is not None:
        raise ValueError("--data goes with the name of a recorded scenario")
    if json:
        cards = [scenario_card(scenario(name)).to_data() for name in scenario_names()]
        recorded = [
            {
                "name": name,
                "summary": recording.summary,
                "file": recording.file,
                "budget": recording.budget,
                "rounds": recording.rounds,
            }
            for name, recording in RECORDINGS.items()
        ]
        say_json({"scenarios": cards, "recorded": recorded})
        return
    columns = ["scenario", "n", "B", "rounds", "task times"]
    for title, names in SCENARIO_GROUPS.items():
        group = [scenario(name) for name in names]
        rows = [(s.name, workers(s), str(s.budget), _count(s.horizon), s.summary) for s in group]
        _show_list(title, columns, rows)
    title = "recorded: made of a file in the folder --data; without it the name tells which"
    rows = [
        (name, "", str(recording.budget), _count(recording.rounds), recording.summary)
        for name, recording in RECORDINGS.items()
    ]
    _show_list(title, columns, rows)
    say("One of them in full: ata-gym scenarios NAME")


def _count(rounds: int | None) -> str:
    """A number of rounds, in short form where that loses no digit."""
    short = [
        f"{rounds // size}{unit}"
        for unit, size in (("M", 10**6), ("k", 1000))
        if rounds and rounds % size == 0
    ]
    if short:
        return short[0]
    return str(rounds or "-")


def list_methods(requested: bool) -> None:
    """List the training methods that the policies compete with, and end the command."""
    if not requested:
        return
    require("torch", extra="train", purpose="The list of training methods")
    from ata_gym.bench.report.table import LEFT, WRAP, Table
    from ata_gym.training.methods import METHODS

    rows = [(name, method.summary(), method.source) for name, method in METHODS.items()]
    show(
        Table("", {"method": LEFT, "what it does": WRAP, "source": WRAP}, rows),
        width=list_width(),
    )
    say(_ABOUT_METHODS)
    raise typer.Exit


_ABOUT_METHODS = """\
All run on the same task times.

Where the data differ by worker, fast workers weigh more, and training ends away
from the minimum: of the problem heterogeneous with d = 10 at f - f* = 9e-4 by
rennala and ringmaster and 6e-4 by asgd, but at 2e-8 by malenia, at 1e-7 by
rescaled-asgd and at 3e-6, still falling, by ringleader.
Weights 1 / (n a_i) mend that only where every worker has a task."""
"""What is said below the list of training methods."""


def _show_list(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from ata_gym.bench.report.table import LEFT, RIGHT, WRAP, Table

    kinds = dict.fromkeys(columns, LEFT)
    kinds |= {name: RIGHT for name in ("n", "B", "rounds") if name in kinds}
    kinds[columns[-1]] = WRAP
    show(Table(title, kinds, rows), width=list_width())


def _show_card(card: Card, json: bool) -> None:
    from rich.console import Console, Group
    from rich.table import Table as Grid
    from rich.text import Text

    if json:
        say_json(card.to_data())
        return
    facts = Grid.grid(padding=(0, 2))
    facts.add_column(style="bold", no_wrap=True)
    facts.add_column(overflow="fold")
    for fact, value in card.facts.items():
        facts.add_row(Text(fact), Text(value))
    parts: list[RenderableType] = [
        Text(card.name, style="bold"),
        Text(plain(card.summary)),
        "",
        facts,
        "",
        *_paragraphs(card.text),
        Text("to try it:", style="bold"),
    ]
    if sys.stdout.isatty():
        width = min(Console().width, WIDTH)
    else:
        width = LIST_WIDTH
    console = Console(width=width, highlight=False)
    console.print(Group(*parts))
    # the command is one line, however long, so that it can be copied
    console.print(Text(f"  {card.command}"), soft_wrap=True)


def _paragraphs(text: str) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    from ata_gym.bench.report.page.docstrings import blocks, terms

    for kind, block in blocks(text):
        if kind == "title":
            yield Text(block, style="bold")
        elif kind == "code":
            yield from (Text(block, style="dim"), "")
        elif kind == "terms":
            for name, description in terms(block):
                yield from (Text(plain(name)), Padding(Text(plain(description)), (0, 0, 0, 4)))
            yield ""
        else:
            yield from (Text(plain(block)), "")


def plain(text: str) -> str:
    """Text without the marks of a docstring.

    Example:
        >>> plain("As :class:`Uta`, by ``allocate``.")
        'As Uta, by allocate.'
    """
    return re.sub(r":\w+:`~?([^`]*)`", r"\1", text).replace("``", "")
