"""Which workers of many have a slot, in which their times are counted in bins."""

import math

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import phase
from ata_policies.beliefs.distributions.arrays import (
    SLOT,
    Feedback,
    RowBelief,
    WorkerTotals,
    rescale,
)


@phase
def give_slots(
    belief: RowBelief,
    round: float,
    feedback: Feedback,
    totals: WorkerTotals,
    count: int,
    mean: Floats,
) -> None:
    """Give slots to workers with results that have none.

    Free slots come first, then the slots of slower workers without feedback.

    Args:
        belief: The belief of the row; it is changed in place.
        round: The round, which is the last one of all workers with feedback.
        feedback: The feedback of the round.
        totals: The totals of the round by worker.
        count: The number of workers with feedback.
        mean: (slots,) room for the mean of each owner.
    """
    slot = belief.slot
    owner = belief.owner
    computed = False
    for j in range(count):
        i = totals.worker[j]
        if slot[i] >= 0 or totals.results[j] == 0.0:
            continue
        s = 0
        while s < len(owner) and owner[s] >= 0:
            s += 1
        if s == len(owner):
            # means are computed once a round; owners with feedback keep their slots, by a mean of 0
            if not computed:
                computed = True
                for k in range(len(owner)):
                    o = owner[k]
                    if belief.last[o] < round:
                        mean[k] = belief.busy[o] / max(belief.counts[o], 1.0)
                    else:
                        mean[k] = 0.0
            s = int(np.argmax(mean))
            shortest = math.inf
            for r in range(len(feedback.worker)):
                if feedback.worker[r] == i:
                    shortest = min(shortest, feedback.time[r])
            if mean[s] <= shortest:
                continue
            # without a slot nothing tells that it is a suspect: its past counts in full again
            if belief.tracks[s, SLOT.stretch] > 0.0:
                rescale(
                    belief,
                    owner[s],
                    s,
                    1.0 / belief.tracks[s, SLOT.kept_share],
                    1.0 / belief.tracks[s, SLOT.stretch],
                )
            slot[owner[s]] = -1
            mean[s] = 0.0
        owner[s] = i
        slot[i] = s
        belief.tracks[s] = 0.0
        belief.bins[s] = 0.0
