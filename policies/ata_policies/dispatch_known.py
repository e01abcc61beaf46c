"""Dispatch for a pool that is known: what the learners of TaskDispatch are measured against."""

from __future__ import annotations

from functools import lru_cache, partial

import numpy as np

from ata_gym.checks import whole_number
from ata_gym.dispatching import Rule, simulate_dispatch
from ata_gym.pools import Pool
from ata_gym.races import best_race, race_allocation
from ata_gym.samples import known_sample
from ata_gym.simulation import Bits, Floats, Ints
from ata_policies.dispatch import choose_shadow, pace
from ata_policies.dispatch_rules import by_count, by_margin
from ata_policies.policy import DispatchPolicy, Observation, Setting, State

_SLICES, _REPLICATES = 64, 1024
_KAPPAS = (0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
_SCREEN = 256


def known_pool(setting: Setting, name: str) -> Pool:
    """The pool, or a ValueError that says that the policy needs one."""
    if setting.pool is None:
        raise ValueError(f"{name} knows the workers: it needs an env whose pool is known")
    return setting.pool


class DispatchOracle(DispatchPolicy):
    """The rule of the default learner with the laws known, and the shadow price chosen by them.

    The reference table's rules, tuned for the price, cost as much or more (``DispatchTable``, ``RestOracle``). Ours.
    A round costs tens of ATA's: it is B decisions, each of which looks at every worker's sample.
    """

    source = "ours"
    constants = "64 slices, 1024 replicates"
    assumes = "nothing"
    knows = "the laws"
    priced = True

    def __init__(self, setting: Setting, *, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.times = known_sample(known_pool(setting, "dispatch-oracle"), _SLICES)
        self.mean = pace(self.times, setting.budget)
        self.order = np.argsort(self.mean, kind="stable")
        self.shadow = np.array(choose_shadow(self.times, setting.budget, setting.price, _REPLICATES))

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Go by the rule."""
        at = seen["missing"][:, 0], seen["running"], seen["age"]
        action = by_margin(self.times, self.mean, self.order, np.ones(self.setting.n), self.shadow, *at)
        return action.astype(np.int64), state


class DispatchTable(DispatchPolicy):
    """Idle worker i may start while at least r_i results are missing; the table r is tuned for the price.

    It starts from the best table of the form r_i = kappa mu_i sum_j 1 / mu_j, over the m fastest, and changes one r_i
    at a time while that lowers E[round time] + price * E[worker time], in 256 simulated rounds. Ours.
    A round costs more than five of ATA's, as it is B decisions.

    Parameters
    ----------
    needed
        (n,) the table, if it is known: whole numbers; above B: never.
    """

    source = "ours"
    constants = "256 replicates"
    assumes = "nothing"
    knows = "the laws"
    priced = True

    def __init__(self, setting: Setting, *, needed: Ints | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        if needed is None:
            self.needed = tuned_table(known_pool(setting, "dispatch-table"), setting.budget, setting.price)
        else:
            self.needed = np.asarray(needed)
            if self.needed.shape != (setting.n,) or self.needed.dtype.kind not in "iu":
                raise ValueError(f"needed must be {setting.n} whole numbers, one per worker, not {needed!r}")

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Look it up."""
        return by_count(self.needed, seen["missing"]).astype(np.int64), state


@lru_cache(maxsize=64)
def tuned_table(pool: Pool, budget: int, price: float) -> Ints:
    """The table of ``DispatchTable``, shape (n,)."""
    times = known_sample(pool, _SLICES)
    mean = pace(times, budget)
    order = np.argsort(mean, kind="stable")
    tables = [_fluid(mean, order[:m], kappa, budget) for m in _some(pool.n, budget) for kappa in _KAPPAS]
    best, least = _best(times, tables, budget, price)
    for _ in range(3):
        before = least
        for i in order[: np.count_nonzero(best <= budget) + 1]:
            never = budget + (i != order[0])  # somebody must do it
            moves = {int(np.clip(best[i] + step, 1, never)) for step in (-2, -1, 1, 2)} - {int(best[i])}
            if not moves:
                continue
            tables = [np.where(np.arange(pool.n) == i, r, best) for r in sorted(moves)]
            table, value = _best(times, tables, budget, price)
            if value < least:
                best, least = table, value
        if least == before:
            break
    return best


def _some(n: int, budget: int) -> Ints:
    """Some numbers of workers, up to all of them, closer where they are few."""
    numbers: Ints = np.unique(np.append(np.round(np.geomspace(1, min(n, 2 * budget), 12)), n)).astype(np.int64)
    return numbers


def _fluid(mean: Floats, fastest: Ints, kappa: float, budget: int) -> Ints:
    needed = np.full(len(mean), budget + 1)
    needed[fastest] = np.clip(np.ceil(kappa * mean[fastest] * np.sum(1.0 / mean[fastest])), 1, budget)
    needed[fastest[0]] = 1
    return needed


def _best(times: Floats, tables: list[Ints], budget: int, price: float) -> tuple[Ints, float]:
    used = np.flatnonzero(np.min(tables, axis=0) <= budget)
    rules: list[Rule] = [partial(_look_up, table[used]) for table in tables]
    totals = simulate_dispatch(times[used], rules, budget, _SCREEN).total(price)
    return tables[int(totals.argmin())], float(totals.min())


def _look_up(needed: Ints, missing: Ints, running: Bits, age: Floats) -> Bits:
    del running, age
    return by_count(needed, missing[:, None])


class DispatchCaps(DispatchPolicy):
    """A race as dispatch: the m fastest start up to B + d tasks, shared out by RAS on the true means, at most B each.

    Without m and d it is the best race for the price (``ata_gym.races.best_race``). The same rounds as in
    ``ata_gym/TaskRace-v0``: what races cost, in this env. A round costs more than five of ATA's, as it is B decisions.

    Parameters
    ----------
    m
        Workers in the race, from 1 to n.
    d
        Tasks to spare, at least 0.
    """

    source = "ours, after Chen, Pan, Monga, Bengio and Jozefowicz, 2016"
    constants = "m and d by the price"
    assumes = "nothing"
    knows = "the laws"
    priced = True

    def __init__(self, setting: Setting, *, m: int | None = None, d: int | None = None, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        pool = known_pool(setting, "dispatch-caps")
        if m is None and d is None:
            self.caps = best_race(pool, setting.budget, setting.price).allocation
        else:
            workers = setting.n if m is None else min(whole_number("m", m), setting.n)
            tasks = setting.budget + (0 if d is None else whole_number("d", d, least=0))
            self.caps = race_allocation(pool.mean(), workers, tasks, setting.budget)

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """One more task for whoever has started fewer than its cap."""
        return (seen["started"] < self.caps).astype(np.int64), state


class DispatchGta(DispatchPolicy):
    """GTA as dispatch: everybody always works.

    A round costs more than five of ATA's, as it is B decisions.
    """

    source = "Tyurin and Richtárik, 2023; Maranjyan et al., ATA, ICML 2025"
    learns = False
    constants = "none"
    assumes = "nothing"

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Everybody."""
        return np.ones_like(seen["started"]), state
