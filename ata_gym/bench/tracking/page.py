"""The page of tracked policies: how soon they follow a change, and what they do meanwhile."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment.run import edges
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.page import figures
from ata_gym.bench.page.experiment_page import facts, origin
from ata_gym.bench.page.note import Note, about_experiment, finished_policies
from ata_gym.bench.page.sections import Chart, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report.statistics import estimate
from ata_gym.bench.report.summary_tables import band, over_seeds
from ata_gym.bench.report.table import Cell
from ata_gym.bench.tracking import report
from ata_gym.bench.tracking.experiment import ORACLES, Tracking
from ata_gym.bench.tracking.report import BLOCK, WITHIN

_ORACLE = ORACLES[0]

_POINTS = 200  # the largest number of points of a curve, and of columns of a heat map


def about(tracking: Tracking, policies: Sequence[str]) -> Note:
    """What the page needs to know of an experiment around changes."""
    return {
        **about_experiment(tracking, policies),
        "windows": tracking.windows(),
        "after": tracking.after,
        "order": np.argsort(report.means_before(tracking), kind="stable").tolist(),
    }


def page(folder: Path, note: Note) -> Page:
    """The page of the policies that have finished."""
    store, done = Folder(folder), finished_policies(folder, note)
    records, players = store.results(done), [Player(one["name"], one["kind"]) for one in note["policies"]]
    places, windows = {player.name: place for place, player in enumerate(players)}, [*map(tuple, note["windows"])]
    found, summary = report.delays(records, windows), report.summarise(records, windows)
    (low, change, end), seeds = windows[0], note["seeds"]
    first = records.filter((pl.col("round") > low) & (pl.col("round") <= end))
    since = np.arange(low - change, end - change)
    of = report.cells(found, summary, note["after"])
    order = sorted(done, key=lambda name: of[name][f"median delay\nto {report.SHORT[_ORACLE]}"].value or 0.0)
    sections: list[Tables | Chart] = [
        overview(of, seeds),
        _round_times(first, places, since, seeds),
        _delays(found, places, note["after"]),
        _tasks([View(_heat(first.filter(policy=name), note, since), {"policy": name}) for name in order], note),
    ]
    changes = ("changes", f"{len(windows)}{', the first' * (len(windows) > 1)} after {change:,} rounds")
    return Page(
        "track",
        note["title"],
        report.lead(found, report.after_changes(records, windows), note["after"]),
        [*facts(note), changes],
        players,
        sections,
        [note["scenario"], *(one["card"] for one in note["policies"])],
        note["command"],
        origin([store.result(name) for name in done]),
    )


def overview(of: Mapping[str, Mapping[str, Cell]], seeds: int) -> Tables:
    """The table of delays and costs."""
    about_columns = (
        f"Delay: rounds after a change until the expected round time is within {WITHIN:.0%} of the least possible one, "
        f"on average over {BLOCK} rounds. Before and after: round times over those of the oracle that knows the "
        f"distributions of each round, {over_seeds(seeds, 'the geometric mean')}; 1 is best. Less is better in "
        "every column. Click on a title to sort."
    )
    titles = [title for title in next(iter(of.values())) if report.SHORT[ORACLES[1]] not in title]
    rows = [[Cell(policy), *(row[title] for title in titles)] for policy, row in of.items()]
    columns = [Column("policy", False), *map(Column, titles)]
    return Tables("overview", "How soon each policy follows", about_columns, [TableView(columns, rows)])


def _round_times(first: pl.DataFrame, places: Mapping[str, int], since: Any, seeds: int) -> Chart:
    shown, series, change = figures.thinned(len(since), _POINTS), [], int((since < 0).sum())
    for (policy,), mine in first.group_by("policy", maintain_order=True):
        expected, best = (mine[name].to_numpy().reshape(-1, len(since)) for name in ("expected", _ORACLE))
        ratio = np.array([report.smooth(row, change) for row in expected / best])
        mean, half = (part[shown] for part in estimate(ratio))
        series.append({"p": places[str(policy)], "mean": mean, "half": None if np.isnan(half).all() else half})
    data = {"x": since[shown], "series": series, "marks": [0]}
    note = (
        "The expected time of a round over the least possible one, mean over the 20 rounds before; the workers change "
        f"at the dashed line. A good policy comes back to 1 soon.{band(seeds)}"
    )
    settings = {"x": "rounds since the change", "y": "round time / least possible", "logY": True}
    return Chart(
        "times", "The time of a round around the change: lower is better", note, "curves", [View(data)], settings
    )


def _delays(found: pl.DataFrame, places: Mapping[str, int], after: int) -> Chart:
    series = [
        {"p": places[str(policy)], "values": mine["delay"].fill_null(after + 1).to_list()}
        for (policy,), mine in found.filter(oracle=_ORACLE).group_by("policy", maintain_order=True)
    ]
    note = f"Each point is one change of one seed. Those at {after + 1:,} did not follow before the window ended."
    data = {"x": "rounds until it follows", "series": series}
    return Chart("delays", "The delay of each change: left is better", note, "spread", [View(data)], {"logX": False})


def _heat(mine: pl.DataFrame, note: Note, since: Any) -> dict[str, Any]:
    """Tasks of the first seed around the first change."""
    tasks = np.array(mine.filter(seed=note["first_seed"])["tasks"].to_list(), np.float64)[:, note["order"]]
    bounds = edges(note["workers"])
    shown = np.unique(np.linspace(0, len(since), _POINTS + 1).astype(np.int64))  # each cell is the mean over its rounds
    means = np.add.reduceat(tasks, shown[:-1], axis=0) / np.diff(shown)[:, None]
    grouped = np.add.reduceat(means, bounds[:-1], axis=1)
    rounds = since[shown[:-1]].tolist()
    return {**figures.heat(rounds, grouped, np.diff(bounds).tolist(), note["budget"], _POINTS), "marks": [0]}


def _tasks(views: list[View], note: Note) -> Chart:
    said = (
        f"Seed {note['first_seed']}: each row is a worker, the fastest before the change at the bottom; the colour is "
        "its share of the budget. After the dashed line, a good policy moves its tasks to the workers that are fast "
        "now."
    )
    top = max(view.data["top"] for view in views)
    settings = {"x": "rounds since the change", "y": "worker, by its mean task time before", "top": top}
    return Chart("allocations", "Who gets the tasks around the change", said, "heat", views, settings)
