"""A lower bound of the proxy regret of every policy, as Graves and Lai (1997) have it."""

from typing import Any, NamedTuple

import numpy as np
import scipy
from numpy.typing import ArrayLike

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.allocation.proxy_loss import proxy_loss, proxy_optimal
from ata_gym.typing import Floats
from ata_gym.utils.validation import whole_number

SAME_LOSS = 1e-12
"""Losses that differ by so small a part are the same."""

_MOST_VARIABLES = 50_000  # of a program; one of 21,000 takes 4 seconds


class RegretLowerBound(NamedTuple):
    """What the proxy regret R_K of every policy is at least, as the number of rounds K grows."""

    constant: float
    """The c in liminf R_K / ln K >= c, in units of time; 0 where no such bound is known here."""
    reason: str
    """Why none is known here; empty where the constant is above 0."""

    @property
    def statement(self) -> str:
        """What holds, in words."""
        if self.reason:
            return f"no logarithmic lower bound is known here: {self.reason}"
        return (
            f"R_K >= {self.constant:.4g} ln K as K grows, for every policy that learns and does"
            " well on all pools of exponential times"
        )

    def after(self, rounds: int) -> str:
        """What is known of the regret after so many rounds, in a sentence.

        Example:
            >>> RegretLowerBound(0.0, "times are not exponential").after(100)
            'Lower bound: no logarithmic lower bound is known here: times are not exponential.'
        """
        if self.reason:
            return f"Lower bound: {self.statement}."
        return (
            f"Lower bound: {self.statement}; c ln K is {float(self.regret(rounds)):.3g} after the"
            " last round. It bounds the limit, not the regret after so many rounds, nor runtime or"
            " cost, nor policies that know the means."
        )

    def regret(self, rounds: ArrayLike) -> Floats:
        """Return c ln K, in the shape of ``rounds``.

        The regret may be below it after any number of rounds; only the limit is bounded.

        Args:
            rounds: Numbers of rounds K, shape (...,).
        """
        return np.asarray(self.constant * np.log(np.asarray(rounds, np.float64)))


def regret_lower_bound(pool: Pool, budget: int) -> RegretLowerBound:
    """The asymptotic lower bound of the proxy regret, for workers of exponential task times.

    Source: Graves and Lai, SIAM Journal on Control and Optimization 35(3), 1997; for combinatorial
    bandits with semi-bandit feedback: Combes, Talebi, Proutière and Lelarge, NeurIPS 2015. They
    have rewards that are linear in the action, and one sample of each arm. The loss max_i a_i mu_i
    and the a_i samples of worker i in a round are worked out here. With R_K = E[sum_k l(a_k, mu)] -
    K l*, as in ``guarantee``,

        liminf R_K / ln K >= c,

    where c is the least sum_a eta_a (l(a, mu) - l*) over numbers eta_a >= 0 of rounds, for each
    allocation a and in units of ln K, such that for all alternative means lambda

        sum_i N_i kl(mu_i, lambda_i) >= 1, N_i = sum_a eta_a a_i, kl(x, y) = x / y - 1 - ln(x / y).

    An alternative has lambda_i = mu_i for each worker i that has tasks in an allocation of least
    loss under mu, and a least loss below l*.

    Proof: let R_K be below any power of K for all means, as it must be for a policy that "does
    well". In most of K rounds the policy then plays an allocation of least loss under mu, but in
    almost none under lambda, where each of these still has the loss l*. To tell mu from lambda that
    surely takes (1 - o(1)) ln K of information, which is the expected sum of kl over tasks
    (Garivier, Ménard and Stoltz, Mathematics of Operations Research 44(2), 2019).

    The finite program: a worker has tasks in an allocation of least loss where mu_i <= l*. Let
    these workers do as many tasks as they can in less than l*; d >= 1 of the B are missing. An
    alternative lets the slower workers do d tasks in less than l*, so the nearest have lambda_i =
    l* / c_i for whole numbers c_i that sum to d.

    What it does not bound: the regret after any fixed number of rounds, the runtime or the cost,
    and policies that know more of the means. It holds for policies that know an upper bound of the
    means, as ATA's alpha is one, since the means of the nearest alternatives are smaller.

    Args:
        pool: The workers, whose task times are independent draws.
        budget: Results B that a round needs.

    Returns:
        The bound. Its constant is 0, the trivial bound, where some task times are not exponential
        or there is a latency; where every worker has tasks in an allocation of least loss, so that
        all of them are learned without regret; and where the program is too large.

    Raises:
        ValueError: If the pool is no pool or the budget is out of its range.

    Example:
        With B = 1 it is the bound of Lai and Robbins (1985), sum_i (mu_i - mu*) / kl(mu_i, mu*):

        >>> from ata_gym import pools, scenario
        >>> round(regret_lower_bound(pools.exponential([1.0, 2.0]), 1).constant, 4)
        3.2589
        >>> round(1 / (2 - 1 - float(np.log(2))), 4)
        3.2589
        >>> regret = scenario("icml2025-regret")
        >>> round(regret_lower_bound(regret.pool, regret.budget).constant, 2)
        50.82
        >>> regret_lower_bound(pools.exponential([1.0, 2.0]), 3).statement[:70]
        'no logarithmic lower bound is known here: every worker has tasks in an'
    """
    budget = whole_number("budget", budget)
    reason = _unknown_because(checked_pool(pool))
    if reason:
        return RegretLowerBound(0.0, reason)
    means = pool.mean()
    loss = float(proxy_loss(proxy_optimal(pool, budget), means))
    with np.errstate(over="ignore"):
        ratios = means / loss
        largest = ratios.max() * budget
    is_fast = ratios <= 1 + SAME_LOSS
    if is_fast.all():
        return RegretLowerBound(0.0, "every worker has tasks in an allocation of least proxy loss")
    if not np.isfinite(largest):
        return RegretLowerBound(0.0, "its program has no solution in floating point")
    # The most tasks of each fast worker that take less than the least loss.
    tasks_below = np.ceil((1 - SAME_LOSS) / ratios[is_fast]) - 1
    missing = budget - int(tasks_below.sum())
    slow = ratios[~is_fast]
    levels = np.empty(0)
    # There are at least B losses, so this is no more than the number of variables.
    size = slow.size * budget
    if size <= _MOST_VARIABLES:
        levels = np.unique(np.outer(slow, np.arange(1, budget + 1)))
        size = slow.size * levels.size
    if size > _MOST_VARIABLES:
        return RegretLowerBound(
            0.0,
            f"its program has at least {size:,} variables, above the limit of {_MOST_VARIABLES:,}",
        )
    least = _least_regret(slow, levels, missing, budget)
    if least is None:
        return RegretLowerBound(0.0, "its program has no solution in floating point")
    return RegretLowerBound(least * loss, "")


def _unknown_because(pool: Pool) -> str:
    """Why no bound is known for the task times of a pool; empty where one may be."""
    if pool.latency is not None:
        return "the rounds have a latency"
    is_exponential = np.asarray(pool.families) == "exponential"
    is_exponential &= pool.distributions.shift == 0
    if not is_exponential.all():
        i = int(np.argmin(is_exponential))
        return f"the task times of worker {i} are not exponential"
    return ""


def _least_regret(slow: Floats, levels: Floats, missing: int, budget: int) -> float | None:
    """The value of the program, with times in units of the least loss.

    In rounds of one loss, the tasks of slow workers are any with 0 <= a_i <= the most that the loss
    allows and sum_i a_i <= B: the fast workers do the others without more loss. These polytopes
    have whole corners, so numbers of rounds and of tasks for each loss stand for all allocations.

    The information of worker i, sum_i N_i f_i(c_i) with f_i(c) = kl(mu_i, l* / c) and f_i(0) = 0,
    is convex in c_i. So its least value over c of sum d is, by duality of linear programs, the
    largest d t - sum_ij w_ij with t - w_ij <= N_i (f_i(j) - f_i(j - 1)) and w_ij >= 0, j = 1..d.
    One linear program holds all alternatives.

    Args:
        slow: The means mu_i / l* of the workers without tasks, shape (m,), above 1.
        levels: The losses l / l* of allocations that give some of them tasks, shape (L,).
        missing: The tasks d that alternatives let them do.
        budget: Results B that a round needs.

    Returns:
        The value, or None if the solver finds none.
    """
    m = slow.size
    gaps = levels - 1
    most_tasks = np.floor(levels[:, None] / slow * (1 + SAME_LOSS))
    times = slow[:, None] * np.arange(1, missing + 1) - 1
    information = times - np.log1p(times)
    unit = information[:, 0]
    # The variables, in units that keep the numbers near 1: the regret of the rounds of each loss
    # (L,), N_i f_i(1) from each loss (L m,), t, and w (m d,).
    by_level = scipy.sparse.eye_array(levels.size)
    by_task = scipy.sparse.eye_array(m * missing)
    caps = scipy.sparse.kron(by_level, np.ones((m, 1))).multiply(
        (most_tasks * unit / gaps[:, None]).reshape(-1, 1)
    )
    gains = np.diff(information, axis=1, prepend=0.0) / unit[:, None]
    of_worker = scipy.sparse.kron(
        np.ones((1, levels.size)), scipy.sparse.block_diag([gain[:, None] for gain in gains])
    )
    rows: list[list[Any]] = [
        [-caps, scipy.sparse.eye_array(levels.size * m), None, None],
        [
            -budget * by_level,
            scipy.sparse.kron(scipy.sparse.diags_array(gaps), 1 / unit[None]),
            None,
            None,
        ],
        [None, -of_worker, np.ones((m * missing, 1)), -by_task],
        [None, None, np.array([[-float(missing)]]), np.ones((1, m * missing))],
    ]
    constraints: Any = scipy.sparse.block_array(rows, format="csr")
    limits = np.zeros(constraints.shape[0])
    limits[-1] = -1.0
    costs = np.zeros(constraints.shape[1])
    costs[: levels.size] = 1.0
    solution = scipy.optimize.linprog(costs, A_ub=constraints, b_ub=limits, method="highs")
    if solution.status != 0 or solution.fun is None:
        return None
    return float(solution.fun)
