"""Policies around abrupt changes: what they did in the rounds before and after each, and how good it was."""

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.bench.experiment.experiment import Config, Experiment
from ata_gym.bench.experiment.run import PolicyRun
from ata_gym.changes import Change, Jump, Redraw, Switch
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.theory.allocation.proxy_loss import proxy_loss
from ata_gym.theory.simulated.costs import simulate
from ata_gym.theory.simulated.slices import known_sample
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number
from ata_policies.steps import decide

ORACLES = ("dynamic-oracle", "dynamic-ofta")
"""What others are compared with: the least expected round time of each round, and the least proxy loss."""

REPLICATES = 256  # rounds played to estimate an expected round time


def abrupt_changes(changes: Iterable[Change], rounds: int) -> tuple[int, ...]:
    """How many rounds are played before each abrupt change (``Switch`` or ``Jump``), increasing.

    >>> abrupt_changes([Switch(every=20), Jump(at=30, workers=(1,), factor=0.1)], rounds=60)
    (20, 30, 40)
    """
    found: set[int] = set()
    for change in changes:
        if isinstance(change, Switch):
            found |= set(change.at) if change.every is None else set(range(change.every, rounds, change.every))
        if isinstance(change, Jump):
            found |= {change.at} | ({change.until} if change.until is not None else set())
    return tuple(sorted(change for change in found if 0 < change < rounds))


def _steady_between(scenario: Scenario) -> bool:
    recorded = any(family.startswith("trace") for family in scenario.catalogue.families)
    return not recorded and all(
        isinstance(change, Switch | Jump) or (isinstance(change, Redraw) and not change.among)
        for change in scenario.changes
    )


@dataclass(frozen=True)
class Tracking(Experiment):
    """An experiment of which the rounds around changes are recorded; it ends with the last of these.

    Make one with :meth:`around`.
    """

    changed_at: tuple[int, ...] = ()  # how many rounds are played before each change, increasing
    before: int = 0
    after: int = 0  # rounds in the longest window before a change, and after one

    @classmethod
    def around(
        cls, experiment: Experiment, changes: Iterable[int] | None = None, *, before: int, after: int
    ) -> "Tracking":
        """Look at ``before`` rounds before and ``after`` rounds after each change, by default at those of the scenario.

        ValueError if nothing changes abruptly, or not where it is said, or workers may be away.
        """
        scenario = experiment.scenario
        if scenario.faulty:
            raise ValueError("workers of this scenario may be away or die: then no round has a best allocation")
        abrupt = abrupt_changes(scenario.changes, experiment.rounds)
        if changes is None:
            found = abrupt
            if not found:
                raise ValueError(
                    f"nothing changes abruptly within {experiment.rounds:,} rounds of {experiment.scenario.name}: "
                    "choose a scenario in which workers trade their speeds or jump, such as "
                    "changing-permuted-linear-n51, or name the round with --change"
                )
        else:
            found = tuple(sorted({whole_number("change", change) for change in changes}))
            if found[-1] >= experiment.rounds:
                raise ValueError(f"change must be below the number of rounds, {experiment.rounds:,}, not {found[-1]:,}")
            other = sorted({*found} - {*abrupt})
            if other and _steady_between(scenario):
                raise ValueError(
                    f"nothing changes in {scenario.name} after {other[0]:,} rounds, so that no policy has anything to "
                    f"follow: {'leave --change out' if abrupt else 'choose a scenario that changes'}"
                )
        own = {field.name: getattr(experiment, field.name) for field in fields(Experiment)}
        own["rounds"] = min(experiment.rounds, found[-1] + whole_number("after", after))
        made = cls(**own, changed_at=found, before=whole_number("before", before), after=after)
        there = [(change - low, end - change) for low, change, end in made.windows()]
        longest_before, longest_after = map(max, zip(*there, strict=True))
        return replace(made, before=longest_before, after=longest_after)

    @property
    def uneven(self) -> bool:
        """Whether the windows after the changes differ in length."""
        return len({end - change for _, change, end in self.windows()}) > 1

    def windows(self) -> list[tuple[int, int, int]]:
        """The first round, the change and the end of each window, in rounds played before; no change is in another's.

        A window is shorter where the episode or another change is near.
        """
        edges = [0, *self.changed_at, self.rounds]
        return [
            (max(low, change - self.before), change, min(high, change + self.after))
            for low, change, high in zip(edges, self.changed_at, edges[2:], strict=False)
        ]

    def record_at(self) -> NDArray[np.int64]:
        return np.unique(np.concatenate([np.arange(low, end) for low, _, end in self.windows()])) + 1

    def config(self) -> Config:
        return super().config() | {"changed_at": list(self.changed_at), "before": self.before, "after": self.after}

    def try_out(self, policy: str) -> None:
        env_id = ata_policies.load(policy).env_id
        if "TaskAllocation" not in env_id:
            raise ValueError(f"{policy} plays {env_id}: only allocations that sum to the budget can be tracked")
        super().try_out(policy)


class ExpectedTimes:
    """Expected round times under the distributions of a round: means over ``REPLICATES`` simulated rounds.

    They are the same for all allocations, with an error of about 1 %. Outliers and noise in common are left out.
    """

    def __init__(self, pool: Pool, budget: int) -> None:
        self.budget, self.times = budget, known_sample(pool, REPLICATES)
        self._known: dict[tuple[bytes, bytes], float] = {}

    def __call__(self, tasks: Ints, distribution: Ints, factor: Floats) -> Floats:
        """Those of allocations ``tasks``, shape (E,), for workers of these distributions and factors; all (E, n)."""
        return np.array([self._one(*row) for row in zip(tasks, distribution, factor, strict=True)])

    def _one(self, tasks: Ints, distribution: Ints, factor: Floats) -> float:
        order = np.lexsort((factor, distribution))  # workers of the same distributions cost the same, whoever has which
        tasks, distribution, factor = tasks[order], distribution[order], factor[order]
        key = tasks.tobytes(), distribution.tobytes() + factor.tobytes()
        if key not in self._known:
            times = self.times[distribution] * factor[:, None]
            self._known[key] = simulate(times, tasks[None], self.budget, REPLICATES).round_time.item()
        return self._known[key]


SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "seed": pl.Int64,  # of the row
    "round": pl.Int64,  # counted from 1
    "round_time": pl.Float64,
    "expected": pl.Float64,  # round time of the allocation, under the distributions of the round
    **dict.fromkeys(ORACLES, pl.Float64),  # that of the oracle's allocation
    "regret": pl.Float64,  # proxy losses above the least possible one, added up since the first round
    "tasks": pl.List(pl.Int64),  # of each worker in the round
}
"""The columns of a policy's records, one row for each seed and round of a window."""


class TrackedRun(PolicyRun):
    """A policy whose rounds around the changes are recorded.

    Where all workers replay a trace by round, the expected round times are those of the recorded times, and exact.
    """

    schema = SCHEMA

    def __init__(self, experiment: Experiment, policy: str) -> None:
        super().__init__(experiment, policy)
        pool, budget = experiment.scenario.catalogue, experiment.scenario.budget
        by_round = set(pool.families) == {"trace-by-round"}
        self.expected_times = None if by_round else ExpectedTimes(pool, budget)
        self.oracles: list[Any] = [ata_policies.make(oracle, self.envs) for oracle in ORACLES]
        self.plans: list[Any] = [None] * len(ORACLES)  # their states, which can be computed anew

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        floats = dict.fromkeys(("round_time", "expected", *ORACLES, "regret"), ("f8",))
        return {**floats, "tasks": ("i8", self.experiment.scenario.pool.n)}

    def measure(self) -> dict[str, NDArray[Any]]:
        if self.expected_times is None:
            measured = super().measure()
            expected = {"expected": proxy_loss(measured["tasks"], self.means), **dict.fromkeys(ORACLES, self.least)}
            return measured | expected
        conditions, best = self.bare.conditions(), {}
        for k, oracle in enumerate(ORACLES):
            best[oracle], self.plans[k] = decide(self.oracles[k], self.envs, self.observation, self.plans[k])
        measured = super().measure()
        allocations = {"expected": measured["tasks"], **best}
        return measured | {
            name: self.expected_times(a, conditions.distribution, conditions.factor) for name, a in allocations.items()
        }
