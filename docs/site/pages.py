"""The pages of what has a name: contents, envs, cards of policies and scenarios, commands."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Collection, Iterable, Mapping
from io import BytesIO
from itertools import islice
from typing import Any, NamedTuple, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from typer.main import get_command

import ata_gym
import ata_policies
from ata_gym.cli import GROUPS, app
from ata_gym.scenarios import SCENARIO_GROUPS, scenario
from ata_gym.scenarios.card import Card
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.card import full_scenario_card, policy_card
from ata_policies.presets import Preset
from ata_policies.registry import default_name, env_ids, load
from ata_policies.steps import play
from docs.site import guides

# what the picture of an env shows, and after how many rounds
SHOWN = "five-workers"
ROUNDS = 40

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

    name: str
    """Also its anchor."""
    card: Card
    code: str = ""
    """The full name of what it is made of; may be empty."""


class Page(NamedTuple):
    """A page, and what its template shows."""

    file: str
    template: str
    title: str
    about: str
    """Markdown below the title."""
    groups: dict[str, list[Any]]
    """What it shows, by the title of the group."""


def every(
    modules: Collection[str],
    guides: Collection[guides.Guide],
    left_out: Mapping[str, str],
) -> list[Page]:
    """All pages that are no module; the contents list only chapters that exist."""
    envs = [env_page(env_id) for env_id in env_ids()]
    shown = [
        Page(
            one.file,
            "guide.html.jinja2",
            one.title,
            one.about,
            {"sections": one.sections, "body": [one.body]},
        )
        for one in guides
    ]
    return [
        _contents(modules, guides, left_out),
        *envs,
        _policies(),
        _scenarios(),
        _commands(),
        *shown,
    ]


def summary(thing: object) -> str:
    """The first sentence of a docstring, on one line."""
    return " ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split())


class Chapter(NamedTuple):
    """A line of the contents."""

    anchor: str
    file: str
    title: str
    about: str
    """Markdown."""


def _contents(
    modules: Collection[str],
    all_guides: Collection[guides.Guide],
    left_out: Mapping[str, str],
) -> Page:
    """The front page: an example, and the chapters."""
    by_source = {one.source: one for one in all_guides}

    def listed(sources: Iterable[str]) -> list[Chapter]:
        shown = [by_source[source] for source in sources if source in by_source]
        return [Chapter(one.source, one.file, one.title, one.about) for one in shown]

    named = [
        ("policies.html", "Policies", f"a card for each of {len(ata_policies.names())}"),
        (
            "scenarios.html",
            "Scenarios",
            f"a card for each of {len(ata_gym.scenario_names())}, and the recorded ones",
        ),
        ("commands.html", "Commands", "every command of `ata-gym`, with its options"),
    ]
    groups = {title: listed(sources) for title, sources in guides.GROUPS.items()}
    rooms = [(title, name) for title, name in ROOMS.items() if name in modules]
    groups = {
        "Start": groups["Start"],
        "Guides": groups["Guides"],
        "Notebooks": listed(guides.notebooks()),
        "Environments": [Chapter(one, env_file(one), one, summary(_env(one))) for one in env_ids()],
        "By name": [Chapter(file, file, title, about) for file, title, about in named],
        "Measured": groups["Measured"],
        "API": [
            Chapter(
                name,
                f"{name.replace('.', '/')}.html",
                title,
                summary(importlib.import_module(name)),
            )
            for title, name in rooms
        ],
        "Left out of the API here": [
            Chapter(name, "", name, reason) for name, reason in left_out.items()
        ],
        "Project": groups["Project"],
    }
    example = (
        (inspect.getdoc(_env(next(iter(env_ids())))) or "")
        .partition("## Example\n\n")[2]
        .partition("\n\n")[0]
    )
    about = f"{summary(ata_gym)}\n\n```pycon\n{example}\n```"
    shown = {title: list[Any](entries) for title, entries in groups.items() if entries}
    return Page("index.html", "contents.html.jinja2", "ata-gym", about, shown)


def env_file(env_id: str) -> str:
    """The name of the page of an env."""
    return f"env-{env_id.partition('/')[2].removesuffix('-v0').lower()}.html"


def env_page(env_id: str) -> Page:
    """An env in Gymnasium's form, with a picture of a round; the API page has the methods, too."""
    kind = _env(env_id)
    api = f"{kind.__module__.replace('.', '/')}.html#{kind.__name__}"
    caption = (
        f"A round of {SHOWN} after {ROUNDS} others, decided by the default policy,"
        f" {default_name(env_id)}: on the left the tasks of each worker and when they ended, on the"
        " right what is known of their mean times."
    )
    about = inspect.getdoc(kind) or ""
    told = {
        "picture": [(picture_file(env_id), caption)],
        "api": [(api, f"{kind.__module__}.{kind.__name__}")],
    }
    return Page(env_file(env_id), "env.html.jinja2", env_id, about, told)


def picture_file(env_id: str) -> str:
    """The name of the picture of an env."""
    return f"picture-{env_file(env_id).removesuffix('.html')}.png"


def env_picture(env_id: str) -> bytes:
    """The env's own picture of a round, as PNG; the same in each build."""
    env = gym.make(env_id, scenario=SHOWN, render_mode="rgb_array")
    rounds = (step for step in play(ata_policies.make("default", env), env, 0) if step.round_over)
    next(islice(rounds, ROUNDS, None))
    made = BytesIO()
    Image.fromarray(cast("NDArray[np.uint8]", env.render())).save(made, "PNG")
    env.close()
    return made.getvalue()


def _env(env_id: str) -> Any:
    return _object(str(gym.spec(env_id).entry_point).replace(":", "."))


def _policies() -> Page:
    groups: dict[str, list[Entry]] = {env_id: [] for env_id in env_ids()}
    for name in ata_policies.names():
        policy = load(name)
        if isinstance(policy, Preset):
            parts_for = policy.parts[0]
        else:
            parts_for = policy
        groups[policy.env_id].append(
            Entry(name, policy_card(name), f"{parts_for.__module__}.{parts_for.__qualname__}"),
        )
    about = (
        "A name is made into a policy by `ata_policies.make`, and a name may be followed by"
        ' hyperparameters: `"ata:alpha=0.5"`. On a terminal, `ata-gym policies NAME` shows the'
        " same."
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
        'A name is an argument of every env: `gymnasium.make("ata_gym/TaskAllocation-v0",'
        ' scenario="five-workers")`. On a terminal, `ata-gym scenarios NAME` shows the same. The'
        " recorded ones are made of a file that does not come with the package."
    )
    return Page("scenarios.html", "cards.html.jinja2", "Scenarios", about, dict(groups))


class Command(NamedTuple):
    """A command, as its help tells."""

    name: str
    about: str
    options: list[tuple[str, str, str, str]]
    """The names, kind, default and help of each option and argument."""


def _commands() -> Page:
    commands: Any = get_command(app)
    groups = {
        title: [_command(commands.commands[one.__name__.replace("_", "-")]) for one in members]
        for title, members in GROUPS.items()
    }
    about = (
        "`ata-gym --install-completion` lets a shell complete names; `ata-gym COMMAND --help` shows"
        " one of these."
    )
    return Page("commands.html", "commands.html.jinja2", "Commands", about, dict(groups))


def _command(command: Any) -> Command:
    options = []
    for one in command.params:
        if one.opts[0].startswith("-"):
            names = ", ".join([*one.opts, *one.secondary_opts])
        else:
            names = one.name.upper()
        if one.required:
            default = "required"
        elif one.default in {None, False, ""}:
            default = ""
        else:
            default = str(one.default)
        options.append((names, str(one.metavar or ""), default, one.help or ""))
    return Command(command.name, inspect.cleandoc(command.help), options)


def _object(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)
