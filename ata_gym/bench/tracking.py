"""Policies around abrupt changes: in the rounds before and after each, what they did, and how good it was."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.allocation import proxy_loss
from ata_gym.bench.experiment import Config, Experiment
from ata_gym.bench.run import Run
from ata_gym.changes import Jump, Switch
from ata_gym.checks import whole_number
from ata_gym.planning import simulate
from ata_gym.pools import Pool
from ata_gym.samples import known_sample
from ata_gym.simulation import Floats, Ints

ORACLES = ("dynamic-oracle", "dynamic-ofta")
"""What others are compared with: the least expected round time of each round, and the least proxy loss."""

REPLICATES = 256
"""Rounds played to estimate an expected round time."""


def abrupt_changes(pool: Pool, rounds: int) -> tuple[int, ...]:
    """How many rounds are played before each abrupt change of a pool (``Switch`` or ``Jump``), increasing.

    >>> from ata_gym.pools import exponential
    >>> pool = exponential([1.0, 2.0]).changing(Switch(every=20), Jump(at=30, workers=(1,), factor=0.1))
    >>> abrupt_changes(pool, rounds=60)
    (20, 30, 40)
    """
    found: set[int] = set()
    for change in pool.changes:
        if isinstance(change, Switch):
            found |= set(change.at) if change.every is None else set(range(change.every, rounds, change.every))
        if isinstance(change, Jump):
            found |= {change.at} | ({change.until} if change.until is not None else set())
    return tuple(sorted(change for change in found if 0 < change < rounds))


@dataclass(frozen=True)
class Tracking(Experiment):
    """An experiment of which the rounds around changes are recorded; it ends with the last of these.

    Make one with :meth:`around`.
    """

    changes: tuple[int, ...] = ()
    """How many rounds are played before each change, increasing."""
    before: int = 0
    after: int = 0

    @classmethod
    def around(
        cls, experiment: Experiment, changes: Iterable[int] | None = None, *, before: int, after: int
    ) -> Tracking:
        """Look at ``before`` rounds before and ``after`` rounds after each change, by default at those of the pool.

        Raises
        ------
        ValueError
            If nothing changes abruptly, a change is not within the rounds, or workers may be away.
        """
        pool = experiment.pool
        if any(change.faulty for change in pool.changes):
            raise ValueError("workers of this world may be away or die: then no best allocation of a round is defined")
        if changes is None:
            found = abrupt_changes(pool, experiment.rounds)
            if not found:
                raise ValueError(
                    f"nothing changes abruptly within {experiment.rounds:,} rounds of {experiment.title}: choose a "
                    "world in which workers trade their speeds or jump, such as changing-permuted-linear-n51, or name "
                    "the round with --change"
                )
        else:
            found = tuple(sorted({whole_number("change", change) for change in changes}))
            if found[-1] >= experiment.rounds:
                raise ValueError(f"change must be below the number of rounds, {experiment.rounds:,}, not {found[-1]:,}")
        own = {field.name: getattr(experiment, field.name) for field in fields(Experiment)}
        own["rounds"] = min(experiment.rounds, found[-1] + whole_number("after", after))
        return cls(**own, changes=found, before=whole_number("before", before), after=after)

    def windows(self) -> list[tuple[int, int, int]]:
        """The first round, the change and the end of each window, in rounds played before; no change is in another's.

        A window is shorter where the episode or another change is near.
        """
        edges = [0, *self.changes, self.rounds]
        return [
            (max(low, change - self.before), change, min(high, change + self.after))
            for low, change, high in zip(edges, self.changes, edges[2:], strict=False)
        ]

    def record_at(self) -> NDArray[np.int64]:
        """All rounds of all windows, counted from 1."""
        rounds: NDArray[np.int64] = np.unique(np.concatenate([np.arange(low, end) for low, _, end in self.windows()]))
        return rounds + 1

    def config(self) -> Config:
        """Everything that a policy's result depends on."""
        return super().config() | {"changes": list(self.changes), "before": self.before, "after": self.after}

    def try_out(self, policy: str) -> None:
        """Refuse a policy that cannot play, or whose allocations need not sum to B."""
        env_id = ata_policies.load(policy).env_id
        if "TaskAllocation" not in env_id:
            raise ValueError(f"{policy} plays {env_id}: only allocations that sum to the budget can be tracked")
        super().try_out(policy)


class ExpectedTimes:
    """Expected round times under the laws of a round; each is worked out once.

    Where all workers replay a trace by round, the law of a round is what was recorded, and they are exact. Otherwise
    rounds are simulated on equally likely task times, the same for all: about 1 % exact. Outliers and noise in
    common are left out.
    """

    def __init__(self, pool: Pool, budget: int) -> None:
        self.budget = budget
        self.by_round = set(pool.families) == {"trace-by-round"}
        self.times = np.empty((pool.n, 0)) if self.by_round else known_sample(pool, REPLICATES)
        self._known: dict[tuple[bytes, bytes], float] = {}

    def __call__(self, tasks: Ints, law: Ints, factor: Floats) -> Floats:
        """Of allocations ``tasks`` to workers that have these laws and factors, all of shape (E, n); returns (E,)."""
        return np.array([self._one(*row) for row in zip(tasks, law, factor, strict=True)])

    def _one(self, tasks: Ints, law: Ints, factor: Floats) -> float:
        order = np.lexsort((factor, law))  # workers of the same laws cost the same, whoever has which
        tasks, law, factor = tasks[order], law[order], factor[order]
        key = tasks.tobytes(), law.tobytes() + factor.tobytes()
        if key not in self._known:
            times = self.times[law] * factor[:, None]
            self._known[key] = simulate(times, tasks[None], self.budget, REPLICATES).round_time.item()
        return self._known[key]


SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "seed": pl.Int64,  # of the row
    "round": pl.Int64,  # counted from 1
    "round_time": pl.Float64,
    "expected": pl.Float64,  # round time of the allocation, under the laws of the round
    **dict.fromkeys(ORACLES, pl.Float64),  # that of the oracle's allocation
    "regret": pl.Float64,  # proxy losses above the least possible one, added up since the first round
    "tasks": pl.List(pl.Int64),  # of each worker in the round
}
"""The columns of a policy's records, one row for each seed and round of a window."""


class Watch(Run):
    """A policy that is watched around the changes."""

    schema = SCHEMA

    def __init__(self, experiment: Experiment, policy: str) -> None:
        super().__init__(experiment, policy)
        self.expected_times = ExpectedTimes(experiment.pool, experiment.budget)
        self.oracles: list[Any] = [ata_policies.make(oracle, self.envs) for oracle in ORACLES]
        self.plans: list[Any] = [None for _ in ORACLES]  # their states, which hold nothing but what can be planned anew

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        """What is recorded of each row."""
        floats = dict.fromkeys(("round_time", "expected", *ORACLES, "regret"), ("f8",))
        return {**floats, "tasks": ("i8", self.experiment.pool.n)}

    def measure(self) -> dict[str, NDArray[Any]]:
        """Play one round; give its quantities."""
        if self.expected_times.by_round:
            measured = super().measure()
            expected = {"expected": proxy_loss(measured["tasks"], self.means), **dict.fromkeys(ORACLES, self.least)}
            return measured | expected
        now, best = self.bare.conditions(), {}
        for k, oracle in enumerate(ORACLES):
            best[oracle], self.plans[k] = self.oracles[k].predict(self.observation, self.plans[k])
        measured = super().measure()
        allocations = {"expected": measured["tasks"], **best}
        return measured | {name: self.expected_times(a, now.law, now.factor) for name, a in allocations.items()}
