"""The sentence at the top of a page: who is best, beside whom."""

from __future__ import annotations

from collections.abc import Mapping

import polars as pl

from ata_gym.bench.report.statistics import BASELINES

_SAID = {
    "ofta": "OFTA, the oracle of the means",
    "gta": "GTA, which starts every worker and cancels the rest",
    "dynamic-ofta": "dynamic-ofta, the oracle of each round's means",
    "dynamic-oracle": "dynamic-oracle, the oracle of each round's distributions",
}


def lead(summary: pl.DataFrame, kinds: Mapping[str, str]) -> str:
    """Who is the best learner (or player, where none learns), and by how much.

    ``summary`` is as ``statistics.summarise`` makes it; the best has the least cost, or runtime where worker time has
    no price.
    """
    figures = {
        (policy, quantity): mean for policy, quantity, mean in summary.select("policy", "quantity", "mean").rows()
    }
    main, ends, learners = _compared(summary, kinds)
    if not ends:
        return "There is nothing to compare yet."
    best = min(learners, key=ends.__getitem__)
    if len(ends) == 1:
        return f"{best} played alone: there is nothing to compare it with."
    beside = next((name for name in BASELINES if name in ends and name != best), None)
    other = beside or max((name for name in ends if name != best), key=ends.__getitem__)

    def share(quantity: str) -> str:
        ratio = figures.get((best, f"{quantity}/{other}"))
        if ratio is None:
            mine, theirs = figures.get((best, quantity)), figures.get((other, quantity))
            ratio = mine / theirs if mine is not None and theirs else None
        return "-" if ratio is None else f"{ratio:.2f}"

    who = f"the best of {len(learners)} that learn" if kinds.get(best) == "learner" and len(learners) > 1 else ""
    name = f"{best}, {who}," if who else best
    said = _SAID.get(other, f"{other}, the slowest here" if beside is None else other)
    cost = f", {share('cost')} of its cost" if main == "cost" else ""
    busy = f"{cost}, and {share('total_worker_time')} of its worker time"
    return f"{name} needs {share('runtime')} of the time of {said}{busy}."


def best_of(summary: pl.DataFrame, kinds: Mapping[str, str]) -> str | None:
    """The learner, or player where none learns, of the least cost or runtime; None if none has any."""
    _, ends, learners = _compared(summary, kinds)
    return min(learners, key=ends.__getitem__, default=None)


def _compared(summary: pl.DataFrame, kinds: Mapping[str, str]) -> tuple[str, dict[str, float], list[str]]:
    """The quantity that counts, who has how much of it, and who is ranked."""
    main = "cost" if "cost" in summary["quantity"] else "runtime"
    known = summary.filter(pl.col("mean").is_not_null(), pl.col("quantity") == main)
    ends: dict[str, float] = dict(known.select("policy", "mean").rows())
    return main, ends, [name for name in ends if kinds.get(name) == "learner"] or list(ends)
