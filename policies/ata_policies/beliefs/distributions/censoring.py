"""Distributions of workers of whose tasks most were cancelled."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import gufunc
from ata_policies.beliefs.distributions.bins import ANCHORED, Counts, DistributionBelief, own_sample, own_shapes, slices

_PASSES = 20
_SURE = 1e-6


class CensoredDistributions(NamedTuple):
    """What E rows of n workers are thought to take."""

    times: Floats  # (E, n, S) means of equally likely slices of each distribution, rising; NaN for those never tried
    evidence: Floats  # (E, n) how many exponential times would tell as much of the distribution's scale


def censored_distributions(belief: DistributionBelief, size: int) -> CensoredDistributions:
    """Estimate the distributions of workers, most of whose tasks may have been cancelled.

    Such a worker shows the beginning of its distribution only. So the workers share a shape (time / mean), learned
    where few tasks are cancelled: with K_i results, N_i cancelled tasks, own slices q_i (``own_sample``) of mean m_i,
    and the slices e of the exponential distribution of mean 1,

        t_i = (K_i - 1)+ / ((K_i - 1)+ + 16),   w_i = t_i K_i / (K_i + N_i),
        Z = (e / 17 + sum_i w_i q_i / m_i) / (1 / 17 + sum_i w_i).

    The mean M_i is the fixed point, from below, of

        M_i = (S_i + c_i + sum_c E[M_i Z | M_i Z > c]) / (K_i + 1 + N_i),

    with the results' total time S_i and the sum over the cancelled tasks: EM for times M_i Z, where one of the
    cancelled tasks counts as a result too, at their mean age c_i (none if N_i = 0). This optimism keeps a worker from
    being given up too early. The distribution is t_i q_i + (1 - t_i) M_i Z, slice by slice, where q_i now has a tail of
    mean M_i. If M_i falls by the factor 2 ** -s_i when the results count double, the evidence is

        1 / (var Z / (K_i + 1 + N_i) + s_i ** 2 / (K_i + 1)):

    what is known from the times, and from which tasks were finished. Ours.

    Worker 0 never takes less than 5; so worker 1, with four tasks cancelled at 8, is thought to have a mean below 20.

    >>> seen = DistributionBelief.empty(1, 2)
    >>> for k in range(200):
    ...     seen = seen.observe(np.array([[0]]), np.array([[5.0 + k / 20]]), np.array([[0.0, 8.0 * (k < 4)]]))
    >>> distributions = censored_distributions(seen, 8)
    >>> distributions.times.mean(axis=2).round(1)
    array([[10. , 12.6]])
    """
    own, trust = own_sample(belief, size), belief.trust()
    ends = belief.cancelled.sum(axis=2)
    _, common = own_shapes(own, trust * belief.counts / np.maximum(belief.counts + ends, 1.0))
    seen = belief.cancelled, belief.sums, belief.counts, belief.busy, belief.anchor, common[:, None, :]
    scale, lower = _means(*seen, 1.0), _means(*seen, 2.0)
    slices(belief.finished, belief.cancelled, belief.sums, belief.deviations, belief.anchor, scale, own)
    times = trust[:, :, None] * own + ((1.0 - trust) * scale)[:, :, None] * common[:, None, :]
    falls = np.log2(np.maximum(scale, 1e-300) / np.maximum(lower, 1e-300))
    unsure = common.var(axis=1)[:, None] / (belief.counts + 1.0 + ends) + falls**2 / (belief.counts + 1.0)
    return CensoredDistributions(times, np.where(belief.untried(), 1.0, 1.0 / np.maximum(unsure, _SURE)))


@gufunc(
    "void(uint32[:], float64[:], float64[:], float64[:], float64[:], float64[:], float64[:], float64[:])",
    "(k),(k),(),(),(),(s),()->()",
)
def _means(
    cancelled: Counts, sums: Floats, count: Floats, busy: Floats, anchor: Floats, shape: Floats,
    weight: Floats, out: Floats,
) -> None:  # fmt: skip
    bins, size = len(cancelled), len(shape)
    finished, ends, rough = 0.0, 0.0, 0.0
    age = np.zeros(bins)
    for b in range(bins):
        finished += sums[b]
        age[b] = anchor[0] * 2.0 ** (0.5 * (b - ANCHORED) + 0.25)
        ends += cancelled[b]
        rough += cancelled[b] * age[b]
    if ends + count[0] == 0.0:
        out[0] = math.nan
        return
    spent = max(busy[0] - finished, 0.0)
    scale = spent / (rough if rough > 0.0 else 1.0)  # the bins' ages, so that they add up to the time spent
    results = weight[0] * (finished + spent / max(ends, 1.0))
    tasks = weight[0] * (count[0] + (1.0 if ends > 0.0 else 0.0)) + ends
    mean = (results + spent) / tasks
    for _ in range(_PASSES):
        total = results
        for b in range(bins):
            if cancelled[b] > 0:
                c = age[b] * scale
                beyond, longer = 0.0, 0
                for s in range(size):
                    if mean * shape[s] > c:
                        beyond += mean * shape[s]
                        longer += 1
                total += cancelled[b] * (beyond / max(longer, 1) if longer > 0 else c + mean)
        mean = total / tasks
    out[0] = mean
