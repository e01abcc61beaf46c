"""The distributions of workers most of whose tasks were cancelled."""

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.slices import common_shape, own_sample

_PASSES = 20  # steps of the search for a mean: those that double it, and then those that halve the distance
_LEAST_VARIANCE = 1e-6
_OPTIMISM = 100.0  # cancelled tasks with which one of them counts as half a result
_PARTS = 4  # places in a bin at which the ages of its cancelled tasks are; at a single place all or none would end


class CensoredDistributions(NamedTuple):
    """Estimated distributions."""

    times: Floats  # (E, n, S) means of equally likely slices of each distribution, rising; NaN for those never tried
    evidence: Floats  # (E, n) how many exponential times would tell as much of the distribution's scale


def censored_distributions(belief: DistributionBelief, size: int) -> CensoredDistributions:
    """Estimate the distributions of workers, most of whose tasks may have been cancelled.

    Such a worker shows only the beginning of its distribution. So the workers share a shape (time / mean), learned
    where few tasks are cancelled: with K_i results, N_i cancelled tasks, own slices q_i (``own_sample``) of mean m_i,
    and the slices e of the exponential distribution of mean 1,

        t_i = (K_i - 1)+ / ((K_i - 1)+ + 16),   w_i = t_i K_i / (K_i + N_i),
        Z = (e / 17 + sum_i w_i q_i / m_i) / (1 / 17 + sum_i w_i).

    The mean M_i is the least fixed point, found by doubling and bisection (EM's own steps are far too short where most
    tasks are cancelled), of

        M_i = (S_i + h_i c_i + sum_c E[M_i Z | M_i Z > c]) / (K_i + h_i + N_i),

    with the results' total time S_i and the sum over the cancelled tasks: that of EM for times M_i Z, where the share
    h_i = 100 / (100 + N_i) of one cancelled task counts as a result too, at their mean age c_i; of N_i < 1, N_i h_i.
    This optimism prevents that a worker is given up too early. Within a bin, ages are at four places. The distribution
    is t_i q_i + (1 - t_i) M_i Z, slice by slice, where q_i has a tail of mean M_i. If M_i falls by the factor 2 ** -s_i
    when the results count double, the evidence is

        1 / (var Z / (K_i + 1 + N_i) + s_i ** 2 / (K_i + 1)):

    the first part is known from the times, the second from which tasks were finished. Ours.

    Worker 0 never takes less than 5, so the mean of worker 1, with four tasks cancelled at 8, is below 20:

    >>> seen = DistributionBelief.empty(1, 2)
    >>> for k in range(200):
    ...     cancelled = np.array([[0.0, 8.0 * (k < 4)]])
    ...     seen = seen.observe(np.array([[0]]), np.array([[5.0 + 37 * k % 200 / 20]]), cancelled)
    >>> distributions = censored_distributions(seen, 8)
    >>> distributions.times.mean(axis=2).round(1)
    array([[10. , 12.7]])
    """
    own, trust = own_sample(belief, size), belief.trust()
    ends = belief.cancellations
    tasks = belief.counts + ends
    weight = np.divide(trust * belief.counts, tasks, out=np.zeros_like(trust), where=tasks > 0.0)
    common = common_shape(own, np.arange(own.shape[1]), weight)
    if belief.owner.shape[1] < tasks.shape[1]:
        belief = belief.of(np.broadcast_to(np.arange(tasks.shape[1]), tasks.shape))
    seen = belief.bins, belief.totals, belief.counts, ends, belief.busy, belief.anchor, common[:, None, :]
    scale, lower = _means(*seen, 1.0), _means(*seen, 2.0)
    own = own_sample(belief, size, scale)
    times = trust[:, :, None] * own + ((1.0 - trust) * scale)[:, :, None] * common[:, None, :]
    falls = np.log2(np.maximum(scale, 1e-300) / np.maximum(lower, 1e-300))
    variance = common.var(axis=1)[:, None] / (tasks + 1.0) + falls**2 / (belief.counts + 1.0)
    return CensoredDistributions(times, np.where(belief.untried(), 1.0, 1.0 / np.maximum(variance, _LEAST_VARIANCE)))


@kernel("(three,k),(),(),(),(),(),(s),()->()")
def _means(
    counted: Floats, finished: Floats, count: Floats, ends: Floats, busy: Floats, anchor: Floats, shape: Floats,
    weight: Floats, out: Floats,
) -> None:  # fmt: skip
    cancelled = counted[1]
    bins, size = len(cancelled), len(shape)
    if ends[0] + count[0] == 0.0:
        out[0] = math.nan
        return
    spent = max(busy[0] - finished[0], 0.0)
    known, rough = 0.0, 0.0
    age = np.zeros(bins)
    for b in range(bins):
        age[b] = anchor[0] * 2.0 ** (0.5 * (b - bins // 2) + 0.25)
        known += cancelled[b]
        rough += cancelled[b] * age[b]
    of_bins = min(ends[0] / known, 1.0) if known > 0.0 else 0.0  # bins also count those that a memory has forgotten
    one = spent / ends[0] if ends[0] > 0.0 else 0.0  # the cancelled tasks' mean age
    share = min(ends[0], 1.0) * _OPTIMISM / (_OPTIMISM + ends[0])
    scale = one * known / (rough if rough > 0.0 else 1.0)  # the bins' ages, so that their mean is that
    results = weight[0] * (finished[0] + share * one)
    tasks = weight[0] * (count[0] + share) + ends[0]
    low, high = (results + spent) / tasks, math.inf
    for _ in range(_PASSES if ends[0] > 0.0 else 0):
        mean = 2.0 * low if high == math.inf else math.sqrt(low) * math.sqrt(high)
        total = results
        for b in range(bins + 1):
            some = cancelled[b] * of_bins if b < bins else max(ends[0] - known, 0.0)  # those not counted in bins
            if some > 0.0:
                for part in range(_PARTS):
                    within = 2.0 ** ((part + 0.5) / (2.0 * _PARTS) - 0.25)
                    c = age[b] * within * scale if b < bins else one
                    beyond, longer = 0.0, 0
                    for s in range(size):
                        if mean * shape[s] > c:
                            beyond += mean * shape[s]
                            longer += 1
                    total += some / _PARTS * (beyond / max(longer, 1) if longer > 0 else c + mean)
        if total > mean * tasks:
            low = mean
        else:
            high = mean
    out[0] = low
