"""The pages of what has a name: envs, policies, scenarios and commands."""

from __future__ import annotations

import csv
import importlib
import inspect
import io
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from textwrap import indent
from typing import cast

import gymnasium as gym
import numpy as np
import typer
from numpy.typing import NDArray
from PIL import Image
from sphinx.ext.napoleon.docstring import GoogleDocstring
from sphinx.util.rst import escape
from typer.cli import get_docs_for_click
from typer.core import TyperGroup
from typer.main import get_command

import ata_policies
from ata_gym.cli import app
from ata_gym.scenarios import SCENARIO_GROUPS, scenario
from ata_gym.scenarios.card import Card
from ata_gym.scenarios.recorded import RECORDINGS
from ata_policies.card import full_scenario_card, policy_card
from ata_policies.registry import default_name, env_ids
from ata_policies.steps import play

# what the picture of an env shows, and after how many rounds
SHOWN = "five-workers"
ROUNDS = 40

_POLICIES = """\
A name is made into a policy by ``ata_policies.make``, and may be followed by hyperparameters:
``"ata:alpha=0.5"``. On a terminal, ``ata-gym policies NAME`` shows the same. A click on the title
of a column sorts the table.
"""
_SCENARIOS = """\
A name is an argument of every env:
``gymnasium.make("ata_gym/TaskAllocation-v0", scenario="five-workers")``. On a terminal,
``ata-gym scenarios NAME`` shows the same. The recorded ones, at the end, are made of a file that
does not come with the package.
"""


def write(folder: Path) -> None:
    """Write all of them into a folder."""
    (folder / "envs").mkdir()
    for env_id in env_ids():
        name = env_id.partition("/")[2].partition("-")[0]
        _picture(env_id).save(folder / "envs" / f"{name}.png")
        (folder / "envs" / f"{name}.md").write_text(_env(env_id, name), encoding="utf-8")
    policies = [policy_card(name) for name in ata_policies.names()]
    columns = ("plays", "must know beforehand", "for workers that change", "source")
    page = _cards("All policies", _POLICIES, policies, columns)
    (folder / "policies.rst").write_text(page, encoding="utf-8")
    columns = ("workers", "budget B", "horizon", "changes")
    page = _cards("All scenarios", _SCENARIOS, [*_scenarios()], columns)
    (folder / "scenarios.rst").write_text(page, encoding="utf-8")
    (folder / "commands.md").write_text("".join(_commands()), encoding="utf-8")


def _picture(env_id: str) -> Image.Image:
    """The env's own picture of a round; the same in each build."""
    env = gym.make(env_id, scenario=SHOWN, render_mode="rgb_array")
    rounds = (step for step in play(ata_policies.make("default", env), env, 0) if step.round_over)
    next(islice(rounds, ROUNDS, None))
    pixels = cast("NDArray[np.uint8]", env.render())
    env.close()
    return Image.fromarray(pixels)


def _env(env_id: str, name: str) -> str:
    """An env in Gymnasium's form: the picture of a round, a table, and the docstring."""
    module, _, kind = str(gym.spec(env_id).entry_point).partition(":")
    about = inspect.getdoc(getattr(importlib.import_module(module), kind)) or ""
    first, _, rest = about.partition("\n\n")
    env = gym.make(env_id, scenario=SHOWN)
    caption = (
        f"A round of {SHOWN} after {ROUNDS} others, decided by the default policy: on the left the"
        " tasks of each worker and when they ended, on the right what is known of their mean times."
    )
    rest = re.sub(r"^(?:>>> .*\n(?:.+(?:\n|$))*)+", r"```pycon\n\g<0>\n```\n", rest, flags=re.M)
    return f"""# {name}

{first}

![{caption}]({name}.png)
*{caption}*

| | |
|---|---|
| **Action space** | `{env.action_space}` |
| **Observation space** | `{env.observation_space}` |
| **Import** | `gymnasium.make("{env_id}", scenario="{SHOWN}")` |
| **Default policy** | [{default_name(env_id)}](../policies.rst) |

{rest}
"""


def _scenarios() -> Iterator[Card]:
    for names in SCENARIO_GROUPS.values():
        yield from (full_scenario_card(scenario(name)) for name in names)
    for name, one in RECORDINGS.items():
        facts = {
            "file": one.file,
            "budget B": f"{one.budget} results a round",
            "horizon": f"{one.rounds:,} rounds",
            "changes": "; ".join(map(str, one.changes)) or "as recorded",
            "source": one.source,
        }
        yield Card(name, f"{one.summary}.", facts, "", f"ata-gym scenarios {name} --data FOLDER")


def _commands() -> Iterator[str]:
    yield "# Commands\n\n`ata-gym --install-completion` lets a shell complete names.\n\n"
    group = cast("TyperGroup", get_command(app))
    context = typer.Context(group)
    for command in group.commands.values():
        yield get_docs_for_click(obj=command, ctx=context, indent=1, call_prefix="ata-gym")


def _cards(title: str, intro: str, cards: Sequence[Card], columns: Iterable[str]) -> str:
    """A table that leads to the cards below it."""
    names = [*columns]
    file = io.StringIO()
    rows = csv.writer(file)
    rows.writerow(["name", *names])
    for card in cards:
        link = f"`{card.name} <#{card.name}>`__"
        rows.writerow([link, *(escape(card.facts.get(name, "")) for name in names)])
    table = indent(file.getvalue().replace("\r", ""), "   ")
    parts = [
        f"{title}\n{'=' * len(title)}\n\n{intro}",
        f".. csv-table::\n   :header-rows: 1\n\n{table}",
        *map(_card, cards),
    ]
    return "\n\n".join(parts)


def _card(card: Card) -> str:
    facts = "\n".join(f":{name}: {escape(fact)}" for name, fact in card.facts.items())
    text = "\n".join(GoogleDocstring(card.text).lines())
    command = card.command.replace(" --policies", " \\\n       --policies")
    return f"""{card.name}
{"-" * len(card.name)}

{card.summary}

{facts}

{text}

.. code-block:: sh

   {command}
"""
