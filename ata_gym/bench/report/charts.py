"""Charts of records: what a page and a picture draw, as data without colours."""

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.report.losses import CLOCKS, SHOWN
from ata_gym.bench.report.page.sections import Chart, Choice, View
from ata_gym.bench.report.quantities import QUANTITIES
from ata_gym.bench.report.statistics import estimate, values
from ata_gym.bench.report.summary_tables import band
from ata_gym.theory import RegretLowerBound
from ata_gym.typing import Floats

_MOST_ROUNDS = 200
"""The largest number of rounds of a curve."""

_MOST_CLOCK_POINTS = 250
"""The largest number of points of a curve against a clock."""

_LOWER = ("loss", "error", "suboptimality")
"""Parts of the names of figures that are better when lower."""

LOWER_BOUND = "lower bound (asymptotic)"
"""The name of the line c ln K, for legends."""

ONE_TRAJECTORY = (
    "The trajectory is the same for all policies: they differ in when its gradients are there."
)
"""The note of a chart against a clock where all policies have the same losses."""


def curves(
    records: pl.DataFrame,
    quantity: str,
    places: Mapping[str, int],
    seeds: int,
) -> Chart:
    """Make the chart of a quantity against the round.

    Args:
        records: The records of the policies.
        quantity: One of ``quantities.CURVES``.
        places: The place of each policy in the list of the report.
        seeds: The number of seeds.
    """
    described = QUANTITIES[quantity]
    name = described.noun.capitalize()
    settings = {"x": "round", "y": described.noun, "perRound": True, "logX": True, "half": True}
    settings["logY"] = not described.zero
    identifier = described.noun.replace(" ", "-").removeprefix("proxy-")
    return Chart(
        identifier,
        f"{name}: lower is better",
        f"{described.curve}{band(seeds)}",
        "curves",
        [View(_means(records, quantity, places))],
        settings,
    )


def with_lower_bound(chart: Chart, bound: RegretLowerBound, learners: Iterable[int]) -> Chart:
    """Return the chart of the proxy regret with the line of a lower bound.

    Args:
        chart: What ``curves`` returns.
        bound: The bound.
        learners: The places of the policies that learn, of which it is a bound.
    """
    (view,) = chart.views
    rounds = view.data["x"]
    height = bound.regret(rounds)
    last = {one["p"]: one["mean"][-1] for one in view.data["series"]}
    below = [place for place in learners if place in last and last[place] < height[-1]]
    line = {"name": LOWER_BOUND, "y": height, "below": below}
    return chart._replace(
        note=f"{chart.note} The thin dashed line is c ln K. {bound.after(int(rounds[-1]))}",
        views=[view._replace(data={**view.data, "bound": line})],
    )


def front(summary: pl.DataFrame, places: Mapping[str, int], seeds: int) -> Chart:
    """Make the chart of runtime against worker time, relative to OFTA if it was played.

    Args:
        summary: What ``statistics.summarise`` returns.
        places: The place of each policy in the list of the report.
        seeds: The number of seeds.
    """
    if "runtime/ofta" in summary["quantity"]:
        divisor = "/ofta"
        words = " / OFTA's"
    else:
        divisor = ""
        words = ""
    points = _points(summary, places, f"total_worker_time{divisor}", f"runtime{divisor}")
    return front_of([View({"points": points})], words, seeds)


def front_of(views: Sequence[View], divisor: str, seeds: int) -> Chart:
    """Make the chart of runtime against worker time.

    Args:
        views: Pictures of points, each with the place of its policy, and mean, low and high of both
            axes.
        divisor: What the axes say that both are divided by; may be empty.
        seeds: The number of seeds.
    """
    point = "Each point is a policy"
    if seeds > 1:
        point += ", with its intervals"
    note = (
        f"{point}. The line joins the policies that no other one is better than in both; the lower"
        " left corner is best."
    )
    settings = {
        "x": f"worker time{divisor}",
        "y": f"runtime{divisor}",
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
    figures: pl.DataFrame,
    quantity: str,
    label: str,
    places: Mapping[str, int],
    note: str = ONE_TRAJECTORY,
) -> list[Chart]:
    """Make a chart of a figure against runtime, and one against worker time.

    Args:
        figures: Columns policy, ``quantity`` and ``CLOCKS``. Columns such as ``runtime_half`` have
            half the interval of a clock.
        quantity: The column of the figure, which is better when lower if ``_LOWER`` has a part of
            its name.
        label: The title of its axis.
        places: The place of each policy in the list of the page.
        note: What is to be said of the trajectories of the policies.
    """
    if any(part in quantity for part in _LOWER):
        direction = "lower"
    else:
        direction = "higher"
    logarithmic = direction == "lower" and bool((figures[quantity].drop_nulls() > 0).all())
    explanation = f"{note} {direction.title()} and further left is better."
    charts = []
    for clock in CLOCKS:
        time = clock.replace("total_", "").replace("_", " ")
        # The axis is logarithmic and shows the last decades; before, little happens.
        earliest = float(figures[clock].to_numpy().max()) / SHOWN
        series = []
        for (policy,), rows in figures.drop_nulls(quantity).group_by("policy", maintain_order=True):
            late_rows = rows.filter(pl.col(clock) >= earliest)
            points = late_rows[thinned(len(late_rows), _MOST_CLOCK_POINTS)]
            line = {
                "p": places[str(policy)],
                "x": points[clock].to_numpy(),
                "mean": points[quantity].to_numpy(),
                "half": None,
            }
            half = f"{clock}_half"
            if half in points.columns and points[half].is_not_null().all():
                line["halfX"] = points[half].to_numpy()
            series.append(line)
        settings = {"x": time, "y": label, "logX": True, "logY": logarithmic, "half": True}
        title = f"{quantity.replace('_', ' ').capitalize()} against {time}: {direction} is better"
        view = View({"x": [], "series": series})
        name = f"{quantity}-{time.replace(' ', '-')}"
        charts.append(Chart(name, title, explanation, "curves", [view], settings))
    return charts


def allocations(
    tasks: Mapping[str, tuple[Sequence[int], Floats]],
    sizes: Sequence[int],
    budget: int,
) -> Chart:
    """Make the chart of the shares of workers in each round, with a picture for each policy.

    Args:
        tasks: For each policy the recorded rounds, and the tasks of each group of workers in them,
            shape (rounds, groups).
        sizes: The number of workers of each group.
        budget: The number B of results in a round.
    """
    views = [
        View(_heat(rounds, groups, sizes, budget), {"policy": policy})
        for policy, (rounds, groups) in tasks.items()
    ]
    note = (
        "Each row is a worker, the fastest by mean task time at the bottom, or a group of"
        " neighbours where there are more than 100; the colour is its share of the budget, mean"
        " over the seeds. A good policy soon gives the slow workers no tasks."
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
    )
    return Chart(
        "spread",
        "Each seed by itself: left is better",
        note,
        "spread",
        views,
        {"logX": False},
    )


def _means(records: pl.DataFrame, quantity: str, places: Mapping[str, int]) -> dict[str, Any]:
    """Return the mean and half the interval of a quantity in recorded rounds.

    A policy is left out where the quantity is null.
    """
    rounds = records["round"].unique().sort().to_numpy()
    series = list[dict[str, Any]]()
    indices = thinned(len(rounds), _MOST_ROUNDS)
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


def thinned(points: int, limit: int) -> list[int]:
    """Return the places of at most ``limit`` of ``points``, evenly spaced, the last among them.

    Example:
        >>> thinned(3, 10), thinned(10, 4)
        ([0, 1, 2], [0, 3, 6, 9])
    """
    positions = np.linspace(0, points - 1, min(points, limit)).round()
    return [int(place) for place in np.unique(positions)]


def _points(
    summary: pl.DataFrame,
    places: Mapping[str, int],
    x: str,
    y: str,
) -> list[dict[str, Any]]:
    """Return a point for each policy: mean, low and high of the quantities ``x`` and ``y``.

    A policy is left out where one of the two means is not known.
    """
    points = []
    for (policy,), rows in summary.group_by("policy", maintain_order=True):
        estimates = {
            name: tuple(figures)
            for name, *figures in rows.select("quantity", "mean", "low", "high").rows()
        }
        means = [estimates.get(name, (None,))[0] for name in (x, y)]
        if None not in means:
            points.append({"p": places[str(policy)], "x": estimates[x], "y": estimates[y]})
    return points


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
    indices = thinned(len(rounds), 80)
    share = tasks[indices] / (np.asarray(sizes) * budget)
    top = float(share.max(initial=0.0)) or 1.0
    cells = np.round(share / top * 65535).astype("<u2")
    return {
        "rounds": [int(rounds[k]) for k in indices],
        "sizes": list(sizes),
        "top": top,
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
    }
