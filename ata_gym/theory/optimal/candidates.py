"""Allocations that are likely to be good: where the search for an optimal one starts."""

from __future__ import annotations

import numpy as np

from ata_gym.pools import Pool
from ata_gym.theory.allocation.beta_rule import allocate_by_cost
from ata_gym.theory.allocation.proxy_loss import proxy_loss
from ata_gym.theory.simulated.costs import can_simulate, simulate
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints

_BETAS = (0.5, 1.0, 1.5, 2.0, 3.0, 4.0)
_BETAS_BY_SUPPORT = (0.0, 0.75, 1.5, 3.0)
_VERY_LARGE = 2**20
_GROWTH = 1.3
_SIZE = 256  # slices of each distribution, and rounds played with each candidate
_KEPT = 5


def candidates(pool: Pool, mean: Floats, proxy: Ints, budget: int, price: float) -> Ints:
    """A few good allocations, shape (C, n), from the minimiser ``proxy`` of the proxy loss and the beta rule.

    Without a price the rule has several beta (one where the budget is very large), and spreads up to the mean or in
    full. With one: the five that cost least in simulated rounds, or by the proxy loss where those are too many.
    """
    if price == 0.0:
        usable = np.isfinite(pool.mean())
        mean, sd = pool.mean()[usable], pool.sd()[usable]
        found = [proxy]
        for spread in (np.minimum(sd, mean), np.where(np.isfinite(sd), sd, mean)):
            for beta in _BETAS if budget <= _VERY_LARGE else (1.5,):
                found.append(np.zeros(pool.n, np.int64))
                found[-1][usable] = allocate_by_cost(mean, beta * spread, budget)
        return np.array(list({one.tobytes(): one for one in found}.values()))
    several = np.unique(np.concatenate([proxy[None], beta_candidates(mean, pool.sd(), budget)]), axis=0)
    if can_simulate(int(several.any(axis=0).sum()), budget, _SIZE):
        costs = simulate(known_sample(pool, _SIZE), several, budget, _SIZE).total(price)
    else:
        work = np.where(np.isfinite(mean), mean, 0.0)
        costs = proxy_loss(several, mean) + price * (several @ work)
    return np.asarray(several[np.argsort(costs, kind="stable")[:_KEPT]])


def beta_candidates(mean: Floats, sd: Floats, budget: int) -> Ints:
    """Allocations by the beta rule on the m fastest workers, shape (C, n), for m growing by 1.3 and several beta.

    Workers of infinite mean get nothing; a standard deviation counts up to the mean.

    >>> beta_candidates(np.array([1.0, 3.0]), np.array([0.1, 0.3]), 4)
    array([[3, 1],
           [4, 0]])
    """
    order = np.argsort(mean, kind="stable")[: int(np.isfinite(mean).sum())]
    supports = np.unique(np.ceil(_GROWTH ** np.arange(np.log(budget) / np.log(_GROWTH) + 2)).astype(np.int64))
    supports = np.unique(np.minimum(supports, min(order.size, budget)))
    spread = np.minimum(sd, mean)
    result = np.zeros((supports.size * len(_BETAS_BY_SUPPORT), mean.size), np.int64)
    for row, (m, beta) in enumerate((m, beta) for m in supports for beta in _BETAS_BY_SUPPORT):
        fast = order[:m]
        result[row, fast] = allocate_by_cost(mean[fast], beta * spread[fast], budget)
    return np.unique(result, axis=0)
