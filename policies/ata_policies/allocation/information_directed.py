"""Variance-based information-directed sampling (Russo and Van Roy, 2014)."""

import math

import numpy as np

from ata_gym.simulation.keys import derive_keys
from ata_gym.theory.allocation.proxy_loss import allocate_scores
from ata_gym.typing import Floats, Ints
from ata_gym.utils.compiled import kernel
from ata_gym.utils.validation import real, whole_number
from ata_policies.allocation.estimates.thompson import draw_means
from ata_policies.beliefs.belief import NoPlan
from ata_policies.beliefs.moments import Totals
from ata_policies.policy import AllocationPolicy, State
from ata_policies.setting import Setting


@kernel("(m,n),(m,n)->(m)")
def expected_regrets(means: Floats, allocations: Ints, out: Floats) -> None:
    """Compute the regret of each allocation, expected over the draws of the means.

    The loss of an allocation a at the means s is the proxy loss max a_i s_i.

    Args:
        means: (m, n) mean task times of n workers, drawn m times.
        allocations: (m, n) the best allocation at each draw.
        out: (m,) the regrets, in units of time.
    """
    draws, n = means.shape
    busy = np.empty(n, np.int64)
    best = np.empty(draws)
    for c in range(draws):
        best[c] = 0.0
        for i in range(n):
            best[c] = max(best[c], allocations[c, i] * means[c, i])
    for a in range(draws):
        tasked = 0
        for i in range(n):
            if allocations[a, i] > 0:
                busy[tasked] = i
                tasked += 1
        out[a] = 0.0
        for c in range(draws):
            loss = 0.0
            for j in range(tasked):
                loss = max(loss, allocations[a, busy[j]] * means[c, busy[j]])
            # not below 0, whatever the rounding
            out[a] += max(loss - best[c], 0.0) / draws


@kernel("(m,n),(m,n)->(m)")
def information(means: Floats, allocations: Ints, out: Floats) -> None:
    """Compute what each allocation tells of the best one: sum a_i Var(E[s_i | a*_i]) / E[s_i]^2.

    Here a*_i are the worker's tasks in the best allocation.

    Args:
        means: (m, n) mean task times s of n workers, drawn m times.
        allocations: (m, n) the best allocation a* at each draw.
        out: (m,) the information, without a unit.
    """
    draws, n = means.shape
    budget = 0
    for i in range(n):
        budget += allocations[0, i]
    number, total = np.zeros((2, budget + 1))
    out[:] = 0.0
    for i in range(n):
        mean = 0.0
        for c in range(draws):
            mean += means[c, i] / draws
            number[allocations[c, i]] += 1.0
            total[allocations[c, i]] += means[c, i]
        gain = 0.0
        for c in range(draws):
            tasks = allocations[c, i]
            if mean > 0.0:
                deviation = total[tasks] / number[tasks] / mean - 1.0
                gain += deviation * deviation / draws
        for c in range(draws):
            out[c] += allocations[c, i] * gain
            number[allocations[c, i]] = 0.0
            total[allocations[c, i]] = 0.0


@kernel("(m),(m),()->()")
def least_ratio(regret: Floats, gain: Floats, draw: Floats, out: Ints) -> None:
    """Choose an action by the distribution of the least expected regret^2 / expected information.

    Some distribution on at most two actions is the best (Russo and Van Roy). With
    probability q of action a, and else b, the ratio

        (q regret_a + (1 - q) regret_b)^2 / (q gain_a + (1 - q) gain_b)

    is convex in q, so that its least value in [0, 1] is at a bound or where its derivative is 0.

    Args:
        regret: (m,) the expected regret of each action, at least 0.
        gain: (m,) its information, at least 0. An action without regret needs none.
        draw: A uniform number in (0, 1).
        out: The index of the action.
    """
    least = math.inf
    out[0] = regret.argmin()
    for a in range(len(regret)):
        for b in range(a + 1):
            rise = regret[a] - regret[b]
            more = gain[a] - gain[b]
            q = 0.0
            if rise * more > 0.0:
                q = min(max(regret[b] / rise - 2.0 * gain[b] / more, 0.0), 1.0)
            elif rise < 0.0 or more > 0.0:
                q = 1.0
            expected = q * regret[a] + (1.0 - q) * regret[b]
            told = q * gain[a] + (1.0 - q) * gain[b]
            ratio = math.inf
            if expected == 0.0:
                ratio = 0.0
            elif told > 0.0:
                ratio = expected / told * expected
            if ratio < least:
                least = ratio
                if draw[0] < q:
                    out[0] = a
                else:
                    out[0] = b


class InformationDirected(AllocationPolicy[Totals, NoPlan]):
    """Variance-based information-directed sampling: little expected regret^2 / information.

    A round draws the means several times from their posterior, the same as in ``Thompson``, and
    finds the best allocation at each draw. It plays one of these, by the distribution with the
    least ratio of squared expected regret to expected information (``expected_regrets``,
    ``information``, ``least_ratio``). Russo and Van Roy, "Learning to optimize via
    information-directed sampling", NeurIPS 2014 (Operations Research 2018), section on
    variance-based IDS.

    Theirs is for one arm a round, whose information is Var(E[s_i | A*]) with the best arm A*. Ours:
    each task informs of its own worker, A* is the worker's own number of tasks, since whole
    allocations at the draws are seldom alike, and the variance is relative to the variance of a
    task time, which is proportional to the squared mean. While a worker is untried, it is Thompson
    sampling.

    Args:
        shape: 1 / (standard deviation / mean)^2 of the times, above 0.
        draws: Draws of the means, from 2 on. A decision costs as much as that many of Thompson's.
    """

    belief = Totals
    source = "Russo and Van Roy, NeurIPS 2014; Operations Research 2018"
    constants = "24 draws; shape 1, a prior of no weight"
    knows = "nothing; or the shape"
    assumes = "gamma times of the shape given"

    def __init__(
        self, setting: Setting, *, shape: float = 1.0, draws: int = 24, seed: int = 0
    ) -> None:
        super().__init__(setting, seed=seed)
        self.shape = real("shape", shape)
        self.draws = whole_number("draws", draws, least=2)

    def allocate(self, state: State[Totals, NoPlan]) -> Ints:
        belief = state.belief
        rows = len(state.round)
        keys = derive_keys(state.round_keys()[:, None], 1, np.arange(self.draws))
        counts = np.repeat(belief.counts, self.draws, axis=0)
        totals = np.repeat(belief.totals, self.draws, axis=0)
        untried = np.repeat(belief.untried(), self.draws, axis=0)
        means = draw_means(counts, totals, self.shape, keys.ravel())
        allocations = allocate_scores(means, self.setting.budget, keys.ravel(), untried)
        shape = (rows, self.draws, self.setting.n)
        means = means.reshape(shape)
        allocations = allocations.reshape(shape)
        choice = least_ratio(
            expected_regrets(means, allocations),
            information(means, allocations),
            state.round_uniforms(1, 2)[:, 0],
        )
        # The first draw alone is Thompson sampling.
        choice = np.where(belief.untried().any(axis=1), 0, choice)
        chosen: Ints = np.take_along_axis(allocations, choice[:, None, None], axis=1)[:, 0]
        return chosen
