"""The pages of what has a name: envs, cards of policies and scenarios, commands."""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, cast

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray
from PIL import Image
from sphinx.ext.napoleon import Config, GoogleDocstring
from typer.main import get_command

import ata_policies
from ata_gym.cli import GROUPS, app
from ata_gym.scenarios import SCENARIO_GROUPS, scenario
from ata_gym.scenarios.card import Card
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.card import full_scenario_card, policy_card
from ata_policies.presets import Preset
from ata_policies.registry import default_name, env_ids, load
from ata_policies.steps import play
from docs.site.extension import escape

# what the picture of an env shows, and after how many rounds
SHOWN = "five-workers"
ROUNDS = 40

SECTIONS = "\n## Description\n"
"""What the docstring of an env holds, and no other: its sections have Gymnasium's titles."""

_EXAMPLE = re.compile(r"^(?:>>> .*\n(?:.+\n)*)", re.MULTILINE)


def write(folder: Path) -> None:
    """Write all of them into a folder."""
    (folder / "envs").mkdir()
    for env_id in env_ids():
        kind = _env(env_id)
        _picture(env_id).save(folder / "envs" / f"{kind.__name__}.png")
        page = folder / "envs" / f"{kind.__name__}.md"
        page.write_text(_env_page(env_id, kind), encoding="utf-8")
    pages = {
        "policies.rst": _policies(),
        "scenarios.rst": _scenarios(),
        "commands.md": _commands(),
    }
    for name, lines in pages.items():
        (folder / name).write_text("\n".join(lines), encoding="utf-8")


def summary(thing: object) -> str:
    """The first paragraph of a docstring, on one line."""
    return escape(" ".join((inspect.getdoc(thing) or "").split("\n\n")[0].split()))


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a table in reStructuredText, which a click on a title sorts."""
    yield from (".. list-table::", "   :header-rows: 1", "   :class: sortable", "")
    for row in (header, *rows):
        first, *others = [" ".join(cell.split()) for cell in row]
        yield from (f"   * - {first}", *(f"     - {cell}" for cell in others))
    yield ""


def _env(env_id: str) -> Any:
    module, _, name = str(gym.spec(env_id).entry_point).partition(":")
    return getattr(importlib.import_module(module), name)


def _env_page(env_id: str, kind: Any) -> str:
    """An env in Gymnasium's form: the picture of a round, a table, and the docstring."""
    about = (inspect.getdoc(kind) or "") + "\n"
    first, _, rest = about.partition("\n\n")
    env = gym.make(env_id, scenario=SHOWN)
    facts = {
        "Action space": f"`{env.action_space}`",
        "Observation space": f"`{env.observation_space}`",
        "Made by": f'`gymnasium.make("{env_id}", scenario="{SHOWN}")`',
        "Default policy": f"[{default_name(env_id)}](../policies.rst)",
        "All methods": f"{{py:obj}}`{kind.__module__}.{kind.__name__}`",
    }
    rows = "".join(f"| **{fact}** | {said} |\n" for fact, said in facts.items())
    caption = (
        f"A round of {SHOWN} after {ROUNDS} others, decided by the default policy: on the left the"
        " tasks of each worker and when they ended, on the right what is known of their mean times."
    )
    rest = _EXAMPLE.sub(lambda found: f"```pycon\n{found[0]}```\n", rest)
    picture = f"![{caption}]({kind.__name__}.png)\n*{caption}*"
    return (
        f"# {env_id.partition('/')[2]}\n\n{first}\n\n{picture}\n\n| | |\n|---|---|\n{rows}\n{rest}"
    )


def _picture(env_id: str) -> Image.Image:
    """The env's own picture of a round; the same in each build."""
    env = gym.make(env_id, scenario=SHOWN, render_mode="rgb_array")
    rounds = (step for step in play(ata_policies.make("default", env), env, 0) if step.round_over)
    next(islice(rounds, ROUNDS, None))
    made = Image.fromarray(cast("NDArray[np.uint8]", env.render()))
    env.close()
    return made


def _title(text: str, line: str) -> tuple[str, ...]:
    return text, line * len(text), ""


def _card(name: str, card: Card, more: Mapping[str, str]) -> Iterator[str]:
    yield from _title(name, "-")
    yield from (escape(card.summary), "")
    for fact, said in card.facts.items():
        yield f":{fact}: {escape(' '.join(said.split()))}"
    yield from (f":{fact}: {said}" for fact, said in more.items())
    yield ""
    yield from GoogleDocstring(escape(card.text), Config(napoleon_use_param=False)).lines()
    command = card.command.replace(" --policies", " \\\n       --policies")
    yield from ("", ".. code-block:: sh", "", f"   {command}", "")


def _policies() -> Iterator[str]:
    cards = {name: policy_card(name) for name in ata_policies.names()}
    yield from _title("Policies", "=")
    yield (
        "A name is made into a policy by ``ata_policies.make``, and may be followed by"
        ' hyperparameters: ``"ata:alpha=0.5"``. On a terminal, ``ata-gym policies NAME`` shows the'
        " same. A click on a title sorts the table.\n"
    )
    columns = ("plays", "must know beforehand", "for workers that change", "looks at the price")
    rows = [
        (f"`{name} <#{name}>`__", *(escape(card.facts.get(one, "")) for one in columns))
        for name, card in cards.items()
    ]
    yield from table(("policy", *columns), rows)
    for name, card in cards.items():
        policy = load(name)
        parts = policy.parts[0] if isinstance(policy, Preset) else policy
        code = f":py:obj:`~{parts.__module__}.{parts.__qualname__}`"
        yield from _card(name, card, {"code": code})


def _scenarios() -> Iterator[str]:
    yield from _title("Scenarios", "=")
    yield (
        "A name is an argument of every env:"
        ' ``gymnasium.make("ata_gym/TaskAllocation-v0", scenario="five-workers")``. On a terminal,'
        " ``ata-gym scenarios NAME`` shows the same. The recorded ones are made of a file that does"
        " not come with the package.\n"
    )
    cards = {
        name: (group, full_scenario_card(scenario(name)))
        for group, names in SCENARIO_GROUPS.items()
        for name in names
    }
    for name, one in RECORDINGS.items():
        facts = {"file": one.file, "budget B": str(one.budget), "horizon": f"{one.rounds:,} rounds"}
        facts |= {"changes": "; ".join(map(str, one.changes)), "source": one.source}
        told = {fact: said for fact, said in facts.items() if said}
        card = Card(name, f"{one.summary}.", told, "", f"ata-gym scenarios {name} --data FOLDER")
        cards[name] = ("recorded", card)
    rows = [
        (f"`{name} <#{name}>`__", group, escape(card.summary))
        for name, (group, card) in cards.items()
    ]
    yield from table(("scenario", "group", "workers"), rows)
    for name, (_, card) in cards.items():
        yield from _card(name, card, {})


def _commands() -> Iterator[str]:
    yield "# Commands\n"
    yield (
        "`ata-gym --install-completion` lets a shell complete names; `ata-gym COMMAND --help` shows"
        " one of these."
    )
    commands: Any = get_command(app)
    for one in (one for members in GROUPS.values() for one in members):
        command = commands.commands[one.__name__.replace("_", "-")]
        yield f"\n## ata-gym {command.name}\n\n{inspect.cleandoc(command.help)}\n"
        if command.params:
            yield "| option | | default |\n|---|---|---|"
        for option in command.params:
            names = ", ".join([*option.opts, *option.secondary_opts])
            if not names.startswith("-"):
                names = option.name.upper()
            default = "required" if option.required else option.default or ""
            yield f"| `{names}` {option.metavar or ''} | {option.help or ''} | {default} |"
