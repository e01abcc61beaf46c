"""The page of a trained agent: how it learned, and how it compares with the policies of the zoo."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import polars as pl

from ata_gym.bench.experiment.store import Folder, finished, read_frame
from ata_gym.bench.page.experiment_page import facts, front_chart, origin, spread
from ata_gym.bench.page.note import Note, about_experiment
from ata_gym.bench.page.sections import Cell, Chart, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report.headline import NOUNS
from ata_gym.bench.report.summary_tables import over_seeds
from ata_gym.rl.learning.experiment import AGENT, END, START, UNIFORM, Learning, names_in, ratios, values
from ata_gym.rl.learning.report import compared, comparison, lead
from ata_gym.scenarios.card import Card


def about(learning: Learning, command: str) -> Note:
    """What the page needs to know of a training; ``command`` plays the agent."""
    agent, scenario = learning.agent, learning.scenario
    told = {"env": agent.env, "algorithm": agent.algorithm, "action": agent.action, "seed": str(agent.seed)}
    told |= {name: str(value) for name, value in agent.hyperparameters.items()}
    card = Card(AGENT, "The agent that was trained, as it was best on the validation seeds.", told, "", command)
    return {
        **about_experiment(learning.test, dict.fromkeys(learning.references())),
        "title": f"{agent.algorithm} in {agent.env} on {scenario.name or 'a scenario of one’s own'}",
        "env": agent.env,
        "steps": learning.steps,
        "roles": learning.roles(),
        "agent": card.to_data(),
    }


def page(folder: Path, note: Note) -> Page:
    """The page of a finished training.

    Raises ValueError if it has not finished, or a file is damaged.
    """
    store = Folder(folder)
    files = [store.result(name) for name in ("curve", "validation", "test")]
    if not all(map(finished, files)):
        raise ValueError(
            f"the training in {folder} has not finished: run the command again, and it goes on where it stopped: "
            f"{shlex.join(note['command'])}"
        )
    curve, validation, test = map(read_frame, files)
    kinds = {one["name"]: one["kind"] for one in note["policies"]}
    players = [Player(name, kinds.get(name, "learner")) for name in names_in(test)]
    places = {player.name: place for place, player in enumerate(players)}
    roles = {role: name for role, name in note["roles"].items() if name in places}
    sections: list[Tables | Chart] = [
        _overview(test, curve, roles, kinds),
        _curve(curve, validation, places),
        _front(test, places, note["seeds"]),
        spread(_spreads(test, places)),
    ]
    sizes = [("steps of training", f"{note['steps']:,}"), *facts(note)]
    cards = [note["scenario"], note["agent"], *(one["card"] for one in note["policies"])]
    said = lead(note["env"], test, curve, roles)
    return Page("learn", note["title"], said, sizes, players, sections, cards, note["command"], origin(files))


def _overview(test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str], kinds: Mapping[str, str]) -> Tables:
    found = comparison(test, curve, roles).items()
    rows = [[Cell(name), Cell(kinds.get(name, "trained")), *cells] for name, cells in found]
    titles = [f"{NOUNS[quantity]}\n/ {roles[role]}" for quantity, role in compared(roles)]
    note = (
        f"Ratios on the same test seeds: {over_seeds(test['seed'].n_unique(), 'the geometric mean')}; less is better. "
        f"Cost is runtime + price x worker time. {AGENT} is kept, as it was best on the validation seeds; {START} has "
        f"not been trained, and {END} was trained to the last step. Click on a title to sort."
    )
    columns = [Column("policy", False), Column("kind", False), *map(Column, ("after\nsteps", *titles))]
    return Tables("overview", "The agent beside the policies", note, [TableView(columns, rows)])


def _curve(curve: pl.DataFrame, validation: pl.DataFrame, places: Mapping[str, int]) -> Chart:
    steps = curve["steps"].to_numpy()
    series = [
        {"p": places[AGENT], "x": steps, "mean": curve[f"cost/{UNIFORM}"].to_numpy(), "half": None, "points": True}
    ]
    for name in names_in(validation):
        level = ratios(validation, validation.filter(policy=name))[UNIFORM][0]
        if name in places:
            series.append({"p": places[name], "x": steps[[0, -1]], "mean": [level, level], "half": None})
    note = (
        f"The cost on the validation seeds over that of {UNIFORM}, after so many steps; the other policies do not "
        "learn between episodes, and are lines."
    )
    settings = {"x": "steps of training", "y": f"cost / that of {UNIFORM}", "logX": False, "logY": False}
    data = {"x": [], "series": series}
    return Chart("curve", "How the agent learned: lower is better", note, "curves", [View(data)], settings)


def _front(test: pl.DataFrame, places: Mapping[str, int], seeds: int) -> Chart:
    points = []
    for name in names_in(test):
        x, y = (ratios(test, test.filter(policy=name), one)[UNIFORM] for one in ("total_worker_time", "runtime"))
        points.append({"p": places[name], "x": x, "y": y})
    made = front_chart([View({"points": points})], f" / that of {UNIFORM}", seeds)
    return made._replace(settings={**made.settings, "half": False})


def _spreads(test: pl.DataFrame, places: Mapping[str, int]) -> Sequence[View]:
    views = []
    for quantity, words in NOUNS.items():
        uniform = values(test, UNIFORM, quantity)
        series = [{"p": places[name], "values": values(test, name, quantity) / uniform} for name in names_in(test)]
        views.append(View({"x": f"{words} / that of {UNIFORM}", "series": series}, {"quantity": words}))
    return views
