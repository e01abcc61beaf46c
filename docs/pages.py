"""The pages that are no module: the contents, the cards of policies and scenarios, and the commands."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection
from typing import Any, NamedTuple

import gymnasium as gym
from typer.main import get_command

import ata_gym
import ata_policies
from ata_gym.cli import PANELS, app
from ata_gym.scenarios import SCENARIO_GROUPS, scenario
from ata_gym.scenarios.card import Card
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.card import full_scenario_card, policy_card
from ata_policies.presets import Preset
from ata_policies.registry import env_ids, load

ROOMS = {
    "At the top": "ata_gym",
    "Envs": "ata_gym.envs",
    "Pools": "ata_gym.pools",
    "Changes": "ata_gym.changes",
    "Scenarios": "ata_gym.scenarios",
    "Theory": "ata_gym.theory",
    "Policies": "ata_policies",
    "Training": "ata_gym.training",
    "Reinforcement learning": "ata_gym.rl",
    "Cluster": "ata_gym.cluster",
    "Bench": "ata_gym.bench",
    "Command line": "ata_gym.cli",
}
"""The chapters of the contents, and the package that each is about."""


class Entry(NamedTuple):
    """A thing with a name, on a page of many."""

    name: str  # also its anchor
    card: Card
    code: str = ""  # the full name of what it is made of; may be empty


class Page(NamedTuple):
    """A page, and what its template shows."""

    file: str
    template: str
    title: str
    about: str  # Markdown below the title
    groups: dict[str, list[Any]]  # what it shows, by the title of the group


def every(modules: Collection[str]) -> list[Page]:
    """All pages; the contents have the chapters of which there are modules."""
    return [_contents(modules), _policies(), _scenarios(), _commands()]


def summary(thing: object) -> str:
    """The first sentence of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


def _contents(modules: Collection[str]) -> Page:
    """The front page: an example, the envs, and the chapters."""
    classes = {env_id: str(gym.spec(env_id).entry_point).replace(":", ".") for env_id in env_ids()}
    envs = [(env_id, name, summary(_object(name))) for env_id, name in classes.items()]
    scenarios = f"a card for each of {len(ata_gym.scenario_names())}, and for those of recorded speeds"
    others = [
        ("policies.html", "Policies", f"a card for each of {len(ata_policies.names())}"),
        ("scenarios.html", "Scenarios", scenarios),
        ("commands.html", "Commands", "every command of `ata-gym`, with its options"),
    ]
    rooms = [(title, name, summary(importlib.import_module(name))) for title, name in ROOMS.items() if name in modules]
    example = inspect.getdoc(_object(next(iter(classes.values())))) or ""
    example = example.partition("Examples\n--------\n")[2].partition("\n\n")[0]
    about = f"{summary(ata_gym)}\n\n```pycon\n{example}\n```"
    return Page("index.html", "contents.html.jinja2", "ata-gym", about, {"envs": envs, "pages": others, "rooms": rooms})


def _policies() -> Page:
    groups: dict[str, list[Entry]] = {env_id: [] for env_id in env_ids()}
    for name in ata_policies.names():
        policy = load(name)
        made_of = policy.parts[0] if isinstance(policy, Preset) else policy
        groups[policy.env_id].append(Entry(name, policy_card(name), f"{made_of.__module__}.{made_of.__qualname__}"))
    about = (
        "A name is made into a policy by `ata_policies.make`, and a name may be followed by hyperparameters: "
        '`"ata:alpha=0.5"`. On a terminal, `ata-gym policies NAME` shows the same.'
    )
    return Page("policies.html", "cards.html.jinja2", "Policies", about, dict(groups))


def _scenarios() -> Page:
    groups = {
        title: [Entry(name, full_scenario_card(scenario(name))) for name in names]
        for title, names in SCENARIO_GROUPS.items()
    }
    groups["recorded"] = []
    for name, one in RECORDINGS.items():
        facts = {"file": one.file, "budget B": str(one.budget), "horizon": f"{one.rounds:,} rounds"}
        facts |= {"changes": "; ".join(map(str, one.changes)), "source": one.source}
        told = {fact: said for fact, said in facts.items() if said}
        card = Card(name, f"{one.summary}.", told, "", f"ata-gym scenarios {name} --data FOLDER")
        groups["recorded"].append(Entry(name, card))
    about = (
        'A name is an argument of every env: `gymnasium.make("ata_gym/TaskAllocation-v0", scenario="five-workers")`. '
        "On a terminal, `ata-gym scenarios NAME` shows the same. The recorded ones are made of a file that does not "
        "come with the package."
    )
    return Page("scenarios.html", "cards.html.jinja2", "Scenarios", about, dict(groups))


class Command(NamedTuple):
    """A command, as its help tells."""

    name: str
    about: str
    options: list[tuple[str, str, str, str]]  # the names, kind, default and help of each option and argument


def _commands() -> Page:
    commands: Any = get_command(app)
    groups = {
        panel: [_command(commands.commands[one.__name__.replace("_", "-")]) for one in members]
        for panel, members in PANELS.items()
    }
    about = "`ata-gym --install-completion` lets a shell complete names; `ata-gym COMMAND --help` shows one of these."
    return Page("commands.html", "commands.html.jinja2", "Commands", about, dict(groups))


def _command(command: Any) -> Command:
    options = []
    for one in command.params:
        names = ", ".join([*one.opts, *one.secondary_opts]) if one.opts[0].startswith("-") else one.name.upper()
        default = "required" if one.required else "" if one.default in {None, False, ""} else str(one.default)
        options.append((names, str(one.metavar or ""), default, one.help or ""))
    return Command(command.name, inspect.cleandoc(command.help), options)


def _object(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
