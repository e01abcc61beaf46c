"""Collectives matched over ranks: what each rank waits inside a step, which totals do not show."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from ata_gym.typing import Floats

_WORTH_A_REMARK = 0.02
"""The part of the time of the steps from which on waiting inside of them is worth a remark."""


class StepCollectives(NamedTuple):
    """The collectives of a step of a rank."""

    names: Sequence[str]
    """(C,), in the order of their starts."""
    waits: Floats
    """(C,): how long each blocked the rank, in microseconds."""


def remarks_on_waits(steps: Sequence[Sequence[StepCollectives]], step_times: Floats) -> list[str]:
    """Return remarks on the waits that the totals of steps do not show.

    The k-th collective of a step is one of all ranks. Who comes last waits for nobody, so that the
    least wait of all ranks is what the collective itself takes. If even the rank that waits least
    in a step waits longer, different ranks were late at different collectives.

    Args:
        steps: (steps, ranks): the steps that all ranks have.
        step_times: (steps,): how long the steps took, in microseconds.
    """
    if not any(rank.names for step in steps for rank in step):
        return [
            "The traces hold no collective: the whole of each step counts as the own time of its"
            " rank, with what it waited.",
        ]
    matched: Any = np.array([_is_matched(step) for step in steps])
    remarks = []
    if not matched.all():
        remarks.append(
            f"In {(~matched).sum()} of {len(steps)} steps the ranks have different collectives,"
            " which cannot be matched; there, the own time of a rank is the time in which its own"
            " thread or device was not blocked.",
        )
    hidden = _hidden([steps[place] for place in np.flatnonzero(matched).tolist()])
    total = step_times[matched].sum()
    if total > 0 and hidden > _WORTH_A_REMARK * total:
        remarks.append(
            "Different ranks were last at different collectives inside a step:"
            f" {1e-3 * hidden / matched.sum():.3g} ms of a step ({hidden / total:.1%}) were waited"
            " so, which no split by the times of whole steps shows; they count as time that no"
            " split changes.",
        )
    return remarks


def _is_matched(step: Sequence[StepCollectives]) -> bool:
    """Whether all ranks have the same collectives, some at least; groups may differ in order."""
    first = step[0].names
    return len(first) > 0 and all(
        rank.names == first or Counter(rank.names) == Counter(first) for rank in step[1:]
    )


def _hidden(steps: Iterable[Sequence[StepCollectives]]) -> float:
    """How long the rank that waited least in its step has waited for others, over all steps."""
    by_count = dict[int, list[list[Floats]]]()
    for step in steps:
        waits = [rank.waits for rank in step]
        by_count.setdefault(len(waits[0]), []).append(waits)
    hidden = 0.0
    for group in by_count.values():
        waits_of_all = np.array(group)  # (steps, ranks, collectives)
        for_others = waits_of_all - waits_of_all.min(axis=1, keepdims=True)
        hidden += float(for_others.sum(axis=2).min(axis=1).sum())
    return hidden
