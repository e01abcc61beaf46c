"""The page of an experiment: policies on one scenario."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.cost_regret import REGRETS, with_cost_regret
from ata_gym.bench.experiment.run import edges
from ata_gym.bench.experiment.store import Folder, finished, read_frame, read_provenance
from ata_gym.bench.page.note import EXPERIMENT, Note, check_note, competitors, finished_policies
from ata_gym.bench.page.sections import Chart, Choice, Column, Page, Player, Tables, TableView, View
from ata_gym.bench.report import losses
from ata_gym.bench.report.headline import LEARNER, NOUNS, headline, leaders
from ata_gym.bench.report.report import known
from ata_gym.bench.report.statistics import BASELINES, ends, estimate, summarise, values
from ata_gym.bench.report.summary_tables import TITLES, band, over_seeds, summary_cells
from ata_gym.bench.report.table import Cell
from ata_gym.typing import Floats
from ata_gym.utils.json_files import fields, nullable
from ata_gym.utils.validation import non_negative

_PER_ROUND = ", or its mean per round, which falls while a policy learns."
NOTE = fields(
    {**EXPERIMENT, "loss_curve": nullable(losses.kept_curve), "least_cost": nullable(non_negative)},
    may_lack=["loss_curve", "least_cost"],
)
"""The rule of the note of an experiment."""

_CURVES = {
    "runtime": ("Runtime", f"The time until all rounds so far were over{_PER_ROUND}"),
    "total_worker_time": ("Worker time", f"The time that all workers together were busy{_PER_ROUND}"),
    "regret": (
        "Proxy regret",
        "The proxy loss above the least possible one, added up over the rounds: a curve that becomes flat has found "
        "the best allocation.",
    ),
    "cost_regret": ("Cost regret", REGRETS),
}
"""Title and note of each curve, by its quantity."""


def page(folder: Path, note: Note) -> Page:
    """The page of the policies that have finished, in the order of the command."""
    check_note(folder, note, NOTE)
    store, done = Folder(folder), finished_policies(folder, note)
    records = with_cost_regret(store.results(done), note.get("least_cost"))
    made = experiment_page(note, records, read_tasks(store, done))
    missing = [one["name"] for one in note["policies"] if one["name"] not in done]
    said = f"Not finished, and not shown: {', '.join(missing)}. The same command goes on with them."
    remarks = [*made.remarks, *[said] * bool(missing)]
    return made._replace(origin=origin([store.result(name) for name in done]), remarks=remarks)


def read_tasks(folder: Folder, policies: Sequence[str]) -> dict[str, tuple[list[int], Floats]]:
    """The recorded rounds of policies, and the tasks of each group of workers in them, where they were recorded."""
    frames = {policy: read_frame(file) for policy in policies if finished(file := folder.allocations(policy))}
    return {
        policy: (frame["round"].to_list(), np.array(frame["tasks"].to_list(), np.float64))
        for policy, frame in frames.items()
    }


def experiment_page(note: Note, records: pl.DataFrame, tasks: Mapping[str, tuple[list[int], Floats]]) -> Page:
    """The page of the records of policies that have finished, and of the tasks of workers."""
    players = [Player(one["name"], one["kind"]) for one in note["policies"]]
    cards = [note["scenario"], *(one["card"] for one in note["policies"])]
    places = {player.name: place for place, player in enumerate(players)}
    seeds, price, curve = note["seeds"], note["price"], note.get("loss_curve")
    summary, samples = summarise(records, price), ends(records, price)
    over = "/ofta" if "runtime/ofta" in summary["quantity"] else ""
    front = View(_front(summary, places, f"total_worker_time{over}", f"runtime{over}"))
    sections: list[Tables | Chart] = [
        overview(summary, note, leaders(samples, competitors(note))),
        *(_curves(name, _means(records, name, places), seeds) for name in _CURVES if known(records, name)),
        front_chart([front], " / that of OFTA" if over else "", seeds),
    ]
    if curve is not None:
        sections[1:1] = against_clocks(losses.on_clocks(losses.frame_of(curve), records), "loss", "loss", places)
    sizes, best = np.diff(edges(note["workers"])).tolist(), leaders(samples, competitors(note))
    order = sorted(tasks, key=lambda name: name not in best)
    maps = [View(_heat(*tasks[name], sizes, note["budget"]), {"policy": name}) for name in order]
    sections += [_allocations(maps)] if maps else []
    if seeds > 1:
        sections.append(spread(((NOUNS[name], {"quantity": NOUNS[name]}, of) for name, of in samples.items()), places))
    lead = headline(samples, competitors(note))
    remarks = [*note.get("remarks", ()), *([] if curve is None else [losses.SAME])]
    return Page("bench", note["title"], lead, facts(note), players, sections, cards, note["command"], (), remarks)


def facts(note: Note) -> list[tuple[str, str]]:
    """The sizes of an experiment."""
    return [
        ("workers n", f"{note['workers']:,}"), ("budget B", f"{note['budget']:,}"), ("rounds", f"{note['rounds']:,}"),
        ("seeds", seeds_of(note)), ("price", f"{note['price']:g}"), ("policies", f"{len(note['policies'])}"),
    ]  # fmt: skip


def seeds_of(note: Note) -> str:
    """How many seeds, and which."""
    first, seeds = note["first_seed"], note["seeds"]
    return f"{seeds:,} ({first if seeds == 1 else f'{first} to {first + seeds - 1}'})"


def overview(summary: pl.DataFrame, note: Note, best: Sequence[str] = ()) -> Tables:
    """The table of all quantities, with intervals; what costs least comes first, and the ``best`` are in bold."""
    present = summary["quantity"].unique(maintain_order=True).to_list()
    beside = next((name for name in BASELINES if f"runtime/{name}" in present), "")  # all ratios are in table.csv
    ratios = [name for name in present if name.partition("/")[2] == beside and summary["policy"].n_unique() > 1]
    quantities = dict.fromkeys([*(name for name in TITLES if name in present), *(ratios if beside else [])])
    cells = {
        title: of
        for title, of in summary_cells(summary, quantities).items()
        if any(cell.value is not None for cell in of.values())
    }
    main = summary.filter(quantity="cost" if note["price"] > 0 else "runtime").sort("mean", nulls_last=True)
    kinds = {one["name"]: one["kind"] + ", yours" * one.get("own", False) for one in note["policies"]}
    rows = [
        [Cell(name), Cell(kinds[name]), *(of.get(name, Cell("-")) for of in cells.values())]
        for name in main["policy"]
        if name in kinds
    ]
    columns = [Column("policy", False), Column("kind", False), *map(Column, cells)]
    cost = f" Cost is runtime + {note['price']:g} x worker time." if note["price"] > 0 else ""
    same = "geometric means of those on the same seeds" if note["seeds"] > 1 else "of the same seed"
    about = (
        f"After {note['rounds']:,} rounds: {over_seeds(note['seeds'])}; less is better in every column but support. "
        f"Ratios are {same}.{cost} The best learner of each game is in bold."
    )
    view = TableView(columns, rows, best=[name for name in best if kinds[name].startswith(LEARNER)])
    return Tables("overview", "All policies beside each other", about, [view])


def _curves(quantity: str, data: dict[str, Any], seeds: int) -> Chart:
    title, note = _CURVES[quantity]
    settings = {"x": "round", "y": title.lower(), "perRound": True, "logX": True, "half": True}
    settings["logY"] = "regret" not in quantity
    id = title.lower().replace(" ", "-").removeprefix("proxy-")
    return Chart(id, f"{title}: lower is better", f"{note}{band(seeds)}", "curves", [View(data)], settings)


def front_chart(views: Sequence[View], over: str, seeds: int) -> Chart:
    """The chart of runtime against worker time."""
    note = (
        f"Each point is a policy{', with its intervals' * (seeds > 1)}. The line joins those that no other beats in "
        "both; the lower left corner is best."
    )
    settings = {"x": f"worker time{over}", "y": f"runtime{over}", "logX": True, "logY": True, "half": True}
    return Chart("front", "Runtime against worker time: lower left is better", note, "front", views, settings)


def against_clocks(curves: pl.DataFrame, quantity: str, label: str, places: Mapping[str, int]) -> list[Tables | Chart]:
    """A figure against runtime and one against worker time."""
    better = "lower" if "loss" in quantity or "error" in quantity else "higher"
    logarithmic = better == "lower" and bool((curves[quantity].drop_nulls() > 0).all())
    explained = (
        "The trajectory is the same for all policies: they differ in when its gradients are there. "
        f"{better.title()} and further left is better."
    )
    sections: list[Tables | Chart] = []
    for clock in losses.CLOCKS:
        time = clock.replace("total_", "").replace("_", " ")
        least = float(curves[clock].to_numpy().max()) / losses.SHOWN
        series = []
        for (policy,), mine in curves.drop_nulls(quantity).group_by("policy", maintain_order=True):
            late = mine.filter(pl.col(clock) >= least)
            points = late[_thinned(len(late), 250)]
            line = {"x": points[clock].to_numpy(), "mean": points[quantity].to_numpy(), "half": None}
            series.append({"p": places[str(policy)], **line})
        settings = {"x": time, "y": label, "logX": True, "logY": logarithmic, "half": True}
        title = f"{quantity.replace('_', ' ').capitalize()} against {time}: {better} is better"
        view = View({"x": [], "series": series})
        name = f"{quantity}-{time.replace(' ', '-')}"
        sections.append(Chart(name, title, explained, "curves", [view], settings))
    return sections


def _allocations(views: Sequence[View]) -> Chart:
    note = (
        "Each row is a worker, the fastest by mean task time at the bottom, or a group of neighbours where there are "
        "more than 100; the colour is its share of the budget, mean over the seeds. A good policy soon leaves the slow "
        "workers without tasks."
    )
    tops = [view.data["top"] for view in views]
    top = min(max(tops), 2 * float(np.median(tops)))  # races start many tasks in vain, and would set the scale
    settings = {"x": "round", "y": "worker, by its mean task time", "logX": True, "top": top}
    return Chart("allocations", "Who gets the tasks, round by round", note, "heat", views, settings)


def spread(samples: Iterable[tuple[str, Choice, Mapping[str, Floats]]], places: Mapping[str, int]) -> Chart:
    """The chart of the single seeds: for each picture its axis, what is chosen with it, and the values of policies."""
    views = []
    for x, choice, of in samples:
        series = [{"p": places[policy], "values": sample} for policy, sample in of.items()]
        views.append(View({"x": x, "series": series}, choice))
    note = "Each point is one seed; the box holds the middle half of them, and its line is the median. Left is better."
    return Chart("spread", "Each seed by itself: left is better", note, "spread", views, {"logX": False})


def origin(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Versions, commit and machine, as noted beside results; all of them where they differ."""
    notes = [read_provenance(file) for file in files]
    keys = dict.fromkeys(key for note in notes for key in note if key != "code")
    return [(key, "; ".join(dict.fromkeys(str(note.get(key, "-")) for note in notes))) for key in keys]


def _means(records: pl.DataFrame, quantity: str, places: Mapping[str, int]) -> dict[str, Any]:
    """Mean and half the interval of a quantity in each recorded round, at most 200 of them.

    A policy is left out where the quantity is null.
    """
    rounds, series = records["round"].unique().sort().to_numpy(), list[dict[str, Any]]()
    shown = _thinned(len(rounds), 200)
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        sample = values(mine, str(policy), quantity)
        if not np.isnan(sample).all():
            mean, half = estimate(sample[:, shown])
            band = None if np.isnan(half).all() else half
            series.append({"p": places[str(policy)], "mean": mean, "half": band})
    return {"x": rounds[shown], "series": series}


def _thinned(points: int, most: int) -> list[int]:
    """Places of at most ``most`` of ``points``, evenly spaced, the last among them.

    >>> _thinned(3, 10), _thinned(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    return [int(place) for place in np.unique(np.linspace(0, points - 1, min(points, most)).round())]


def _front(summary: pl.DataFrame, places: Mapping[str, int], x: str, y: str) -> dict[str, Any]:
    points = []
    for (policy,), mine in summary.group_by("policy", maintain_order=True):
        of = {name: tuple(figures) for name, *figures in mine.select("quantity", "mean", "low", "high").rows()}
        if None not in (of.get(x, (None,))[0], of.get(y, (None,))[0]):
            points.append({"p": places[str(policy)], "x": of[x], "y": of[y]})
    return {"points": points}


def _heat(rounds: Sequence[int], tasks: Floats, sizes: Sequence[int], budget: int) -> dict[str, Any]:
    """Tasks of groups of ``sizes`` workers, (rounds, groups), as shares of the budget for one worker of a group.

    Cells are 16-bit whole numbers, little first, a round after the other: shares of the largest one, ``top``.
    """
    shown = _thinned(len(rounds), 80)
    share = tasks[shown] / (np.asarray(sizes) * budget)
    top = float(share.max(initial=0.0)) or 1.0
    cells = np.round(share / top * 65535).astype("<u2")
    return {
        "rounds": [int(rounds[k]) for k in shown], "sizes": list(sizes), "top": top,
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
    }  # fmt: skip
