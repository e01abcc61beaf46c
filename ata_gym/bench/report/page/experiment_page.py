"""The page of an experiment: policies on one scenario."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment import group_edges
from ata_gym.bench.report import losses
from ata_gym.bench.report.headline import NOUNS, headline, leaders
from ata_gym.bench.report.page.sections import (
    Chart,
    Choice,
    Column,
    Page,
    Series,
    Tables,
    TableView,
    View,
)
from ata_gym.bench.report.quantities import REGRETS, with_cost_regret
from ata_gym.bench.report.report import known
from ata_gym.bench.report.statistics import BASELINES, ends, estimate, summarise, values
from ata_gym.bench.report.summary_tables import TITLES, band, over_seeds, summary_cells
from ata_gym.bench.report.table import Cell
from ata_gym.bench.role import LEARNER
from ata_gym.bench.store.folder import Folder, finished, read_frame, read_provenance
from ata_gym.bench.store.note import EXPERIMENT, Note, check_note, competitors, finished_policies
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
    "total_worker_time": (
        "Worker time",
        f"The time that all workers together were busy{_PER_ROUND}",
    ),
    "regret": (
        "Proxy regret",
        "The proxy loss above the least possible one, added up over the rounds: a curve that"
        " becomes flat has found the best allocation.",
    ),
    "cost_regret": ("Cost regret", REGRETS),
}
"""Title and note of each curve, by its quantity."""


def page(folder: Path, note: Note) -> Page:
    """Make the page of the policies that have finished, in the order of the command.

    Raises:
        DamagedError: If the note or a result is damaged.
        ValueError: If no policy has finished.
    """
    check_note(folder, note, NOTE)
    store = Folder(folder)
    finished_names = finished_policies(folder, note)
    records = with_cost_regret(store.results(finished_names), note.get("least_cost"))
    result = experiment_page(note, records, read_tasks(store, finished_names))
    remarks = [*result.remarks]
    missing = [
        policy["name"] for policy in note["policies"] if policy["name"] not in finished_names
    ]
    if missing:
        remarks.append(
            f"Not finished, and not shown: {', '.join(missing)}. The same command goes on with"
            " them.",
        )
    return result._replace(
        origin=origin([store.result(name) for name in finished_names]), remarks=remarks
    )


def read_tasks(folder: Folder, policies: Sequence[str]) -> dict[str, tuple[list[int], Floats]]:
    """Read the tasks of workers, for each policy of which they were recorded.

    Returns:
        For each policy, its recorded rounds, and the tasks of each group of workers in them, shape
        (rounds, groups).
    """
    tasks = {}
    for policy in policies:
        file = folder.allocations(policy)
        if finished(file):
            frame = read_frame(file)
            of_groups = np.array(frame["tasks"].to_list(), np.float64)
            tasks[policy] = (frame["round"].to_list(), of_groups)
    return tasks


def experiment_page(
    note: Note,
    records: pl.DataFrame,
    tasks: Mapping[str, tuple[list[int], Floats]],
) -> Page:
    """Make the page of an experiment from records, without the origin of its results.

    Args:
        note: The note of the experiment.
        records: The records of the policies that have finished.
        tasks: The tasks of workers, as ``read_tasks`` returns them.
    """
    players = [Series(policy["name"], policy["kind"]) for policy in note["policies"]]
    places = {player.name: place for place, player in enumerate(players)}
    samples = ends(records, note["price"])
    remarks = [*note.get("remarks", ())]
    if note.get("loss_curve") is not None:
        remarks.append(losses.SAME)
    return Page(
        study="bench",
        title=note["title"],
        lead=headline(samples, competitors(note)),
        facts=facts(note),
        players=players,
        sections=_sections(note, records, tasks, places),
        cards=[note["scenario"], *(policy["card"] for policy in note["policies"])],
        command=note["command"],
        origin=(),
        remarks=remarks,
    )


def _sections(
    note: Note,
    records: pl.DataFrame,
    tasks: Mapping[str, tuple[list[int], Floats]],
    places: Mapping[str, int],
) -> list[Tables | Chart]:
    """Make the sections of the page of an experiment.

    ``places`` has the place of each policy in the list of the page.
    """
    seeds = note["seeds"]
    summary = summarise(records, note["price"])
    samples = ends(records, note["price"])
    best = leaders(samples, competitors(note))
    sections: list[Tables | Chart] = [overview(summary, note, best)]
    curve = note.get("loss_curve")
    if curve is not None:
        on_clocks = losses.on_clocks(losses.frame_of(curve), records)
        sections += against_clocks(on_clocks, "loss", "loss", places)
    for name in _CURVES:
        if known(records, name):
            sections.append(_curves(name, _means(records, name, places), seeds))
    if "runtime/ofta" in summary["quantity"]:
        points = _front(summary, places, "total_worker_time/ofta", "runtime/ofta")
        divisor = " / that of OFTA"
    else:
        points = _front(summary, places, "total_worker_time", "runtime")
        divisor = ""
    sections.append(front_chart([View(points)], divisor, seeds))
    # The best policies come first, since the page shows the first picture when it opens.
    sizes = np.diff(group_edges(note["workers"])).tolist()
    order = sorted(tasks, key=lambda name: name not in best)
    maps = [View(_heat(*tasks[name], sizes, note["budget"]), {"policy": name}) for name in order]
    if maps:
        sections.append(_allocations(maps))
    if seeds > 1:
        by_quantity = (
            (NOUNS[name], {"quantity": NOUNS[name]}, values_by_policy)
            for name, values_by_policy in samples.items()
        )
        sections.append(spread(by_quantity, places))
    return sections


def facts(note: Note) -> list[tuple[str, str]]:
    """Return the sizes of an experiment, each with its name first."""
    return [
        ("workers n", f"{note['workers']:,}"),
        ("budget B", f"{note['budget']:,}"),
        ("rounds", f"{note['rounds']:,}"),
        ("seeds", seeds_of(note)),
        ("price", f"{note['price']:g}"),
        ("policies", f"{len(note['policies'])}"),
    ]


def seeds_of(note: Note) -> str:
    """Say how many seeds were played, and which."""
    first = note["first_seed"]
    seeds = note["seeds"]
    if seeds == 1:
        return f"1 ({first})"
    return f"{seeds:,} ({first} to {first + seeds - 1})"


def overview(summary: pl.DataFrame, note: Note, best: Sequence[str] = ()) -> Tables:
    """Make the table of all quantities, with intervals; what costs least comes first.

    Args:
        summary: What ``statistics.summarise`` returns.
        note: The note of the experiment.
        best: The policies in bold; only learners among them are.
    """
    present = summary["quantity"].unique(maintain_order=True).to_list()
    quantities = [name for name in TITLES if name in present]
    # Ratios to one baseline are enough here; table.csv has all.
    baseline = next((name for name in BASELINES if f"runtime/{name}" in present), "")
    if baseline and summary["policy"].n_unique() > 1:
        quantities += [name for name in present if name.partition("/")[2] == baseline]
    cells = {
        title: column_cells
        for title, column_cells in summary_cells(summary, quantities).items()
        if any(cell.value is not None for cell in column_cells.values())
    }
    if note["price"] > 0:
        ranked_by = "cost"
        cost_text = f" Cost is runtime + {note['price']:g} x worker time."
    else:
        ranked_by = "runtime"
        cost_text = ""
    ranked = summary.filter(quantity=ranked_by).sort("mean", nulls_last=True)
    kinds = {
        policy["name"]: f"{policy['kind']}, yours" if policy.get("own", False) else policy["kind"]
        for policy in note["policies"]
    }
    rows = [
        [
            Cell(name),
            Cell(kinds[name]),
            *(column_cells.get(name, Cell("-")) for column_cells in cells.values()),
        ]
        for name in ranked["policy"]
        if name in kinds
    ]
    columns = [Column("policy", False), Column("kind", False), *map(Column, cells)]
    if note["seeds"] > 1:
        ratio_text = "geometric means of those on the same seeds"
    else:
        ratio_text = "of the same seed"
    note_text = (
        f"After {note['rounds']:,} rounds: {over_seeds(note['seeds'])}; less is better in every"
        f" column but support. Ratios are {ratio_text}.{cost_text} The best learner of each"
        " game is in bold."
    )
    view = TableView(columns, rows, best=[name for name in best if kinds[name].startswith(LEARNER)])
    return Tables("overview", "All policies beside each other", note_text, [view])


def _curves(quantity: str, data: dict[str, Any], seeds: int) -> Chart:
    """Make the chart of a quantity against the round."""
    title, note = _CURVES[quantity]
    settings = {"x": "round", "y": title.lower(), "perRound": True, "logX": True, "half": True}
    settings["logY"] = "regret" not in quantity  # a regret may be 0
    id = title.lower().replace(" ", "-").removeprefix("proxy-")
    return Chart(
        id,
        f"{title}: lower is better",
        f"{note}{band(seeds)}",
        "curves",
        [View(data)],
        settings,
    )


def front_chart(views: Sequence[View], over: str, seeds: int) -> Chart:
    """Make the chart of runtime against worker time.

    Args:
        views: Pictures of points; see ``_front``.
        over: What the axes say that both are divided by; may be empty.
        seeds: The number of seeds.
    """
    point = "Each point is a policy"
    if seeds > 1:
        point += ", with its intervals"
    note = (
        f"{point}. The line joins those that no other beats in both; the lower left corner is best."
    )
    settings = {
        "x": f"worker time{over}",
        "y": f"runtime{over}",
        "logX": True,
        "logY": True,
        "half": True,
    }
    return Chart(
        "front",
        "Runtime against worker time: lower left is better",
        note,
        "front",
        views,
        settings,
    )


def against_clocks(
    curves: pl.DataFrame,
    quantity: str,
    label: str,
    places: Mapping[str, int],
) -> list[Tables | Chart]:
    """Make a chart of a figure against runtime, and one against worker time.

    Args:
        curves: Columns policy, ``quantity`` and ``losses.CLOCKS``.
        quantity: The column of the figure; a name with "loss" or "error" is better when lower.
        label: The title of its axis.
        places: The place of each policy in the list of the page.
    """
    if "loss" in quantity or "error" in quantity:
        direction = "lower"
    else:
        direction = "higher"
    logarithmic = direction == "lower" and bool((curves[quantity].drop_nulls() > 0).all())
    explanation = (
        "The trajectory is the same for all policies: they differ in when its gradients are there. "
        f"{direction.title()} and further left is better."
    )
    sections: list[Tables | Chart] = []
    for clock in losses.CLOCKS:
        time = clock.replace("total_", "").replace("_", " ")
        # The axis is logarithmic and shows the last decades; before, little happens.
        earliest = float(curves[clock].to_numpy().max()) / losses.SHOWN
        series = []
        for (policy,), rows in curves.drop_nulls(quantity).group_by("policy", maintain_order=True):
            late_rows = rows.filter(pl.col(clock) >= earliest)
            points = late_rows[_thinned(len(late_rows), 250)]
            series.append(
                {
                    "p": places[str(policy)],
                    "x": points[clock].to_numpy(),
                    "mean": points[quantity].to_numpy(),
                    "half": None,
                },
            )
        settings = {"x": time, "y": label, "logX": True, "logY": logarithmic, "half": True}
        title = f"{quantity.replace('_', ' ').capitalize()} against {time}: {direction} is better"
        view = View({"x": [], "series": series})
        name = f"{quantity}-{time.replace(' ', '-')}"
        sections.append(Chart(name, title, explanation, "curves", [view], settings))
    return sections


def _allocations(views: Sequence[View]) -> Chart:
    """Make the chart of the shares of workers in each round, with a picture for each policy."""
    note = (
        "Each row is a worker, the fastest by mean task time at the bottom, or a group of"
        " neighbours where there are more than 100; the colour is its share of the budget, mean"
        " over the seeds. A good policy soon leaves the slow workers without tasks."
    )
    # Races start many tasks in vain; without the second limit their shares would set the scale.
    tops = [view.data["top"] for view in views]
    top = min(max(tops), 2 * float(np.median(tops)))
    settings = {"x": "round", "y": "worker, by its mean task time", "logX": True, "top": top}
    return Chart("allocations", "Who gets the tasks, round by round", note, "heat", views, settings)


def spread(
    samples: Iterable[tuple[str, Choice, Mapping[str, Floats]]],
    places: Mapping[str, int],
) -> Chart:
    """Make the chart of the single seeds.

    Args:
        samples: For each picture, the title of its axis, the choice that shows it, and the values
            of each policy, shape (seeds,).
        places: The place of each policy in the list of the page.
    """
    views = []
    for x, choice, values_by_policy in samples:
        series = [
            {"p": places[policy], "values": sample} for policy, sample in values_by_policy.items()
        ]
        views.append(View({"x": x, "series": series}, choice))
    note = (
        "Each point is one seed; the box holds the middle half of them, and its line is the median."
        " Left is better."
    )
    return Chart(
        "spread",
        "Each seed by itself: left is better",
        note,
        "spread",
        views,
        {"logX": False},
    )


def origin(files: Sequence[Path]) -> list[tuple[str, str]]:
    """Return versions, commit and machine, as noted beside results.

    Where the notes differ, all values are there.
    """
    notes = [read_provenance(file) for file in files]
    keys = dict.fromkeys(key for note in notes for key in note if key != "code")
    return [
        (key, "; ".join(dict.fromkeys(str(note.get(key, "-")) for note in notes))) for key in keys
    ]


def _means(records: pl.DataFrame, quantity: str, places: Mapping[str, int]) -> dict[str, Any]:
    """Return the mean and half the interval of a quantity in at most 200 recorded rounds.

    A policy is left out where the quantity is null.
    """
    rounds = records["round"].unique().sort().to_numpy()
    series = list[dict[str, Any]]()
    indices = _thinned(len(rounds), 200)
    for (policy,), rows in records.group_by("policy", maintain_order=True):
        sample = values(rows, str(policy), quantity)
        if not np.isnan(sample).all():
            mean, half = estimate(sample[:, indices])
            if np.isnan(half).all():
                shown_half = None
            else:
                shown_half = half
            series.append({"p": places[str(policy)], "mean": mean, "half": shown_half})
    return {"x": rounds[indices], "series": series}


def _thinned(points: int, limit: int) -> list[int]:
    """Return the places of at most ``limit`` of ``points``, evenly spaced, the last among them.

    Example:
        >>> _thinned(3, 10), _thinned(10, 4)
        ([0, 1, 2], [0, 3, 6, 9])
    """
    positions = np.linspace(0, points - 1, min(points, limit)).round()
    return [int(place) for place in np.unique(positions)]


def _front(summary: pl.DataFrame, places: Mapping[str, int], x: str, y: str) -> dict[str, Any]:
    """Return a point for each policy: mean, low and high of the quantities ``x`` and ``y``.

    A policy is left out where one of the two means is not known.
    """
    points = []
    for (policy,), rows in summary.group_by("policy", maintain_order=True):
        estimates = {
            name: tuple(figures)
            for name, *figures in rows.select("quantity", "mean", "low", "high").rows()
        }
        if None not in (estimates.get(x, (None,))[0], estimates.get(y, (None,))[0]):
            points.append({"p": places[str(policy)], "x": estimates[x], "y": estimates[y]})
    return {"points": points}


def _heat(
    rounds: Sequence[int],
    tasks: Floats,
    sizes: Sequence[int],
    budget: int,
) -> dict[str, Any]:
    """Return the share of the budget that one worker of each group gets, in at most 80 rounds.

    ``tasks`` has the shape (rounds, groups), and ``sizes`` the number of workers of each group. The
    cells are 16-bit whole numbers, little-endian, round by round: 65535 is the largest share,
    ``top``. They are in base 64.
    """
    indices = _thinned(len(rounds), 80)
    share = tasks[indices] / (np.asarray(sizes) * budget)
    top = float(share.max(initial=0.0)) or 1.0
    cells = np.round(share / top * 65535).astype("<u2")
    return {
        "rounds": [int(rounds[k]) for k in indices],
        "sizes": list(sizes),
        "top": top,
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
    }
