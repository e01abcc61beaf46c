"""Collectives matched over ranks: what each rank waits inside a step, which totals do not show."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from ata_gym.bench.logs.traces.own_time import StepTimes
from ata_gym.typing import Floats

_WORTH_A_REMARK = 0.02
"""The part of the time of the steps from which on waiting inside of them is worth a remark."""


def remarks_on_waits(ranks: Sequence[Sequence[StepTimes]], step_times: Floats) -> list[str]:
    """Return remarks on the waits that the totals of steps do not show.

    The k-th collective of a step is one of all ranks. Who comes last waits for nobody, so that the
    least wait of all ranks is what the collective itself takes. If even the rank that waits least
    in a step waits longer, different ranks were late at different collectives.

    Args:
        ranks: (steps, ranks): one step each, those that all ranks have.
        step_times: (steps,): how long the steps took, in microseconds.
    """
    matched = [step for step in range(len(ranks)) if _is_matched(ranks[step])]
    if not any(len(names) for step in ranks for rank in step for names in rank.collectives):
        return [
            "The traces hold no collective: the whole of each step counts as the own time of its"
            " rank, with what it waited.",
        ]
    remarks = []
    if len(matched) < len(ranks):
        remarks.append(
            f"In {len(ranks) - len(matched)} of {len(ranks)} steps the ranks have different"
            " collectives, which cannot be matched; there, the own time of a rank is the time in"
            " which its own thread or device was not blocked.",
        )
    hidden = np.array([_hidden(ranks[step]) for step in matched])
    total = step_times[matched].sum()
    if total > 0 and hidden.sum() > _WORTH_A_REMARK * total:
        remarks.append(
            "Different ranks were last at different collectives inside a step:"
            f" {hidden.mean() / 1e3:.3g} ms of a step ({hidden.sum() / total:.1%}) were"
            " waited so, which no split by the times of whole steps shows; they count as time that"
            " no split changes.",
        )
    return remarks


def _is_matched(step: Sequence[StepTimes]) -> bool:
    """Whether all ranks have the same collectives, some at least."""
    first = Counter(step[0].collectives[0])
    return bool(first) and all(Counter(rank.collectives[0]) == first for rank in step[1:])


def _hidden(step: Sequence[StepTimes]) -> float:
    """How long the rank that waited least has waited for others."""
    waits = np.array([rank.waits[0] for rank in step])
    least = (waits - waits.min(axis=0)).sum(axis=1).min()
    return float(least)
