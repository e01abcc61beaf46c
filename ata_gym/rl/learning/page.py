"""The page of a trained agent: how it learned, and how it compares with the policies of the zoo."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from ata_gym.bench.experiment.store import Folder, finished, read_frame
from ata_gym.bench.page.experiment_page import front_chart, origin, spread
from ata_gym.bench.page.note import Note, about_policy
from ata_gym.bench.page.sections import Cell, Chart, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report.summary_tables import over_seeds, show
from ata_gym.rl.learning.experiment import AGENT, END, START, UNIFORM, Learning, names_in, ratios
from ata_gym.rl.learning.headline import lead, steps_of
from ata_gym.scenarios.card import Card, scenario_card

_QUANTITIES = {"cost": "cost", "runtime": "runtime", "total_worker_time": "worker time"}


def about(learning: Learning, command: str) -> Note:
    """What the page needs to know of a training; ``command`` plays the agent."""
    agent, scenario = learning.agent, learning.scenario
    facts = {"env": agent.env, "algorithm": agent.algorithm, "action": agent.action, "seed": str(agent.seed)}
    facts |= {name: str(value) for name, value in agent.hyperparameters.items()}
    card = Card(AGENT, "The agent that was trained, as it was best on the validation seeds.", facts, "", command)
    return {
        "title": f"{agent.algorithm} in {agent.env} on {scenario.name or 'a scenario of one’s own'}",
        "env": agent.env,
        "steps": learning.steps,
        "workers": scenario.pool.n,
        "budget": scenario.budget,
        "rounds": scenario.horizon,
        "price": scenario.price,
        "validation_seeds": learning.validation_rows,
        "test_seeds": learning.test_rows,
        "roles": learning.roles(),
        "scenario": scenario_card(scenario).to_data(),
        "agent": card.to_data(),
        "policies": [about_policy(name) for name in dict.fromkeys(learning.references())],
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
        _front(test, places, note["test_seeds"]),
        spread(_spreads(test, places)),
    ]
    facts = [
        ("steps of training", f"{note['steps']:,}"),
        ("workers n", f"{note['workers']:,}"),
        ("budget B", f"{note['budget']:,}"),
        ("rounds", f"{note['rounds']:,}"),
        ("price", f"{note['price']:g}"),
        ("test seeds", f"{note['test_seeds']:,}"),
    ]
    cards = [note["scenario"], note["agent"], *(one["card"] for one in note["policies"])]
    headline = lead(note["env"], test, curve, roles)
    return Page("learn", note["title"], headline, facts, players, sections, cards, note["command"], origin(files))


def _overview(test: pl.DataFrame, curve: pl.DataFrame, roles: Mapping[str, str], kinds: Mapping[str, str]) -> Tables:
    shown = [("cost", role) for role in roles] + [(name, "uniform") for name in ("runtime", "total_worker_time")]
    shown = [(quantity, role) for quantity, role in shown if role in roles]
    rows, steps, seeds = [], steps_of(curve), test["seed"].n_unique()
    for name in names_in(test):
        mine, cells = test.filter(policy=name), []
        cells.append(Cell(f"{steps[name]:,}", steps[name]) if name in steps else Cell("-"))
        for quantity, role in shown:
            mean, _, high = ratios(test, mine, quantity)[roles[role]]
            cells.append(Cell(show(mean, None if np.isnan(high) else high), mean))
        rows.append([Cell(name), Cell(kinds.get(name, "trained")), *cells])
    titles = [f"{_QUANTITIES[quantity]}\n/ {roles[role]}" for quantity, role in shown]
    note = (
        f"Ratios on the same test seeds: {over_seeds(seeds, 'the geometric mean')}; less is better. Cost is runtime + "
        f"price x worker time. {AGENT} is kept, as it was best on the validation seeds; {START} has not been trained, "
        f"and {END} was trained to the last step. Click on a title to sort."
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
        mine = test.filter(policy=name)
        x, y = (ratios(test, mine, quantity)[UNIFORM] for quantity in ("total_worker_time", "runtime"))
        points.append({"p": places[name], "x": x, "y": y})
    made = front_chart([View({"points": points})], f" / that of {UNIFORM}", seeds)
    return made._replace(settings={**made.settings, "half": False})


def _spreads(test: pl.DataFrame, places: Mapping[str, int]) -> Sequence[View]:
    uniform, views = test.filter(policy=UNIFORM).sort("seed"), []
    for quantity, words in _QUANTITIES.items():
        series = [
            {
                "p": places[name],
                "values": (test.filter(policy=name).sort("seed")[quantity] / uniform[quantity]).to_numpy(),
            }
            for name in names_in(test)
        ]
        views.append(View({"x": f"{words} / that of {UNIFORM}", "series": series}, {"quantity": words}))
    return views
