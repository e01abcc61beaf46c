"""The distributions of workers most of whose tasks were cancelled."""

import math
from typing import NamedTuple

import numpy as np

from ata_gym.typing import Floats
from ata_gym.utils.compiled import kernel
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.beliefs.distributions.slices import common_shape, own_sample

_PASSES = 20
"""Steps of the search for a mean: the first ones double it, the others halve the distance."""
_LEAST_VARIANCE = 1e-6
"""The least variance that evidence rests on."""
_OPTIMISM = 100.0
"""Cancelled tasks with which one of them counts as half a result."""
_PLACES_PER_BIN = 4
"""Places in a bin at which the ages of its cancelled tasks are.

At a single place all of them or none would end.
"""


class CensoredDistributions(NamedTuple):
    """Estimated distributions."""

    times: Floats
    """(E, n, S) means of equally likely slices of each distribution, rising.

    NaN for workers never tried.
    """
    evidence: Floats
    """(E, n) how many exponential times would tell as much of the distribution's scale."""


def censored_distributions(belief: DistributionBelief, size: int) -> CensoredDistributions:
    """Estimate the distributions of workers, most of whose tasks may have been cancelled.

    Such a worker shows only the beginning of its distribution. So the workers share a shape (time /
    mean), learned where few tasks are cancelled: with K_i results, N_i cancelled tasks, own slices
    q_i (``own_sample``) of mean m_i, and the slices e of the exponential distribution of mean 1,

        t_i = (K_i - 1)+ / ((K_i - 1)+ + 16),   w_i = t_i K_i / (K_i + N_i),
        Z = (e / 17 + sum_i w_i q_i / m_i) / (1 / 17 + sum_i w_i).

    The mean M_i is the least fixed point, found by doubling and bisection (EM's own steps are far
    too short where most tasks are cancelled), of

        M_i = (S_i + h_i c_i + sum_c E[M_i Z | M_i Z > c]) / (K_i + h_i + N_i),

    with the results' total time S_i and the sum over the cancelled tasks. This is the fixed point
    of EM for times M_i Z, where the share h_i = 100 / (100 + N_i) of one cancelled task counts as a
    result too, at their mean age c_i; of N_i < 1, N_i h_i. This optimism prevents that a worker is
    given up too early. Within a bin, ages are at four places. The distribution is
    t_i q_i + (1 - t_i) M_i Z, slice by slice, where q_i has a tail of mean M_i. If M_i falls by the
    factor 2 ** -s_i when the results count double, the evidence is

        1 / (var Z / (K_i + 1 + N_i) + s_i ** 2 / (K_i + 1)):

    the first part is known from the times, the second from which tasks were finished. Ours.

    In the example worker 0 never takes less than 5, so the mean of worker 1, with four tasks
    cancelled at 8, is below 20.

    Args:
        belief: What is known of the workers.
        size: Slices S of each distribution.

    Example:
        >>> belief = DistributionBelief.empty(1, 2)
        >>> for k in range(200):
        ...     duration = np.array([[5.0 + 37 * k % 200 / 20]])
        ...     cancelled = np.array([[0.0, 8.0 * (k < 4)]])
        ...     belief = belief.observe(np.array([[0]]), duration, cancelled)
        >>> distributions = censored_distributions(belief, 8)
        >>> distributions.times.mean(axis=2).round(1)
        array([[10. , 12.7]])
    """
    slices = own_sample(belief, size)
    trust = belief.trust()
    cancellations = belief.cancellations
    tasks = belief.counts + cancellations
    weight = np.divide(trust * belief.counts, tasks, out=np.zeros_like(trust), where=tasks > 0.0)
    common = common_shape(slices, np.arange(slices.shape[1]), weight)
    # with fewer slots than workers, give each worker its bins, so that the kernel has one per row
    if belief.owner.shape[1] < tasks.shape[1]:
        belief = belief.take_workers(np.broadcast_to(np.arange(tasks.shape[1]), tasks.shape))
    arguments = (
        belief.bins,
        belief.totals,
        belief.counts,
        cancellations,
        belief.busy,
        belief.anchor,
        common[:, None, :],
    )
    # the means, and what they would be if the results counted double
    scale = _means(*arguments, 1.0)
    lower = _means(*arguments, 2.0)
    slices = own_sample(belief, size, scale)
    of_own = trust[:, :, None] * slices
    of_shape = ((1.0 - trust) * scale)[:, :, None] * common[:, None, :]
    times = of_own + of_shape
    falls = np.log2(np.maximum(scale, 1e-300) / np.maximum(lower, 1e-300))
    from_times = common.var(axis=1)[:, None] / (tasks + 1.0)
    from_finished = falls**2 / (belief.counts + 1.0)
    variance = from_times + from_finished
    evidence = np.where(belief.untried(), 1.0, 1.0 / np.maximum(variance, _LEAST_VARIANCE))
    return CensoredDistributions(times, evidence)


@kernel("(three,k),(),(),(),(),(),(s),()->()")
def _means(
    counted: Floats,
    finished: Floats,
    count: Floats,
    cancellations: Floats,
    busy: Floats,
    anchor: Floats,
    shape: Floats,
    weight: Floats,
    out: Floats,
) -> None:
    """Find the mean of a worker by doubling and bisection, see ``censored_distributions``."""
    cancelled = counted[1]
    bins = len(cancelled)
    size = len(shape)
    if cancellations[0] + count[0] == 0.0:
        out[0] = math.nan
        return
    spent = max(busy[0] - finished[0], 0.0)
    in_bins = 0.0
    rough_time = 0.0
    age = np.zeros(bins)
    for b in range(bins):
        age[b] = anchor[0] * 2.0 ** (0.5 * (b - bins // 2) + 0.25)
        in_bins += cancelled[b]
        rough_time += cancelled[b] * age[b]
    # bins also count cancelled tasks that a memory has forgotten
    if in_bins > 0.0:
        remembered = min(cancellations[0] / in_bins, 1.0)
    else:
        remembered = 0.0
    # the cancelled tasks' mean age
    if cancellations[0] > 0.0:
        mean_age = spent / cancellations[0]
    else:
        mean_age = 0.0
    share = min(cancellations[0], 1.0) * _OPTIMISM / (_OPTIMISM + cancellations[0])
    # ages at the centres of bins are rough: scale them to the exact mean age
    scale = mean_age * in_bins / (rough_time if rough_time > 0.0 else 1.0)
    results = weight[0] * (finished[0] + share * mean_age)
    tasks = weight[0] * (count[0] + share) + cancellations[0]
    low = (results + spent) / tasks
    high = math.inf
    for _ in range(_PASSES if cancellations[0] > 0.0 else 0):
        if high == math.inf:
            mean = 2.0 * low
        else:
            mean = math.sqrt(low) * math.sqrt(high)
        total = results
        for b in range(bins + 1):
            # a last part stands for cancelled tasks that are not counted in bins
            if b < bins:
                number = cancelled[b] * remembered
            else:
                number = max(cancellations[0] - in_bins, 0.0)
            if number > 0.0:
                for part in range(_PLACES_PER_BIN):
                    place = 2.0 ** ((part + 0.5) / (2.0 * _PLACES_PER_BIN) - 0.25)
                    if b < bins:
                        c = age[b] * place * scale
                    else:
                        c = mean_age
                    # what is expected is the mean of the slices beyond the age; or, without any,
                    # one mean more than the age
                    time_beyond = 0.0
                    slices_beyond = 0
                    for s in range(size):
                        if mean * shape[s] > c:
                            time_beyond += mean * shape[s]
                            slices_beyond += 1
                    if slices_beyond > 0:
                        expected = time_beyond / max(slices_beyond, 1)
                    else:
                        expected = c + mean
                    total += number / _PLACES_PER_BIN * expected
        if total > mean * tasks:
            low = mean
        else:
            high = mean
    out[0] = low
