"""The data of the pictures on a page, from records as of ``run.SCHEMA``; players are named by their places."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.report.statistics import estimate, values
from ata_gym.typing import Floats

Data = dict[str, Any]


def curves(records: pl.DataFrame, quantity: str, places: Mapping[str, int]) -> Data:
    """Mean and half the interval of a quantity in each recorded round, at most 200 of them.

    A policy is left out where the quantity is null.
    """
    rounds, series = records["round"].unique().sort().to_numpy(), list[Data]()
    shown = thinned(len(rounds), 200)
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        sample = values(mine, str(policy), quantity)
        if not np.isnan(sample).all():
            mean, half = estimate(sample[:, shown])
            band = None if np.isnan(half).all() else half
            series.append({"p": places[str(policy)], "mean": mean, "half": band})
    return {"x": rounds[shown], "series": series}


def thinned(points: int, most: int) -> list[int]:
    """Places of at most ``most`` of ``points``, evenly spaced, the last among them.

    >>> thinned(3, 10), thinned(10, 4)
    ([0, 1, 2], [0, 3, 6, 9])
    """
    if points <= most:
        return list(range(points))
    return [int(place) for place in np.unique(np.linspace(0, points - 1, most).round())]


def front(summary: pl.DataFrame, places: Mapping[str, int], x: str, y: str) -> Data:
    """Two quantities of a summary, with their intervals: a point for each policy that has both."""
    points = []
    for (policy,), mine in summary.group_by("policy", maintain_order=True):
        of = {name: tuple(figures) for name, *figures in mine.select("quantity", "mean", "low", "high").rows()}
        if None not in (of.get(x, (None,))[0], of.get(y, (None,))[0]):
            points.append({"p": places[str(policy)], "x": of[x], "y": of[y]})
    return {"points": points}


def heat(rounds: Sequence[int], tasks: Floats, sizes: Sequence[int], budget: int) -> Data:
    """Tasks of groups of ``sizes`` workers, (rounds, groups), as shares of the budget for one worker of a group.

    Cells are 16-bit whole numbers, little first, a round after the other: shares of the largest one, ``top``.
    """
    shown = thinned(len(rounds), 80)
    share = tasks[shown] / (np.asarray(sizes) * budget)
    top = float(share.max(initial=0.0)) or 1.0
    cells = np.round(share / top * 65535).astype("<u2")
    return {
        "rounds": [int(rounds[k]) for k in shown],
        "sizes": list(sizes),
        "top": top,
        "cells": base64.b64encode(cells.tobytes()).decode("ascii"),
    }
