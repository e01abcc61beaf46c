"""Policies around abrupt changes: what they did before and after each, and how good it was."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.bench.experiment import Config, Experiment
from ata_gym.bench.runner.policy_run import PolicyRun
from ata_gym.changes import Change, Conditions, Jump, Redraw, Switch
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario
from ata_gym.theory.allocation.proxy_loss import proxy_loss
from ata_gym.theory.simulated.costs import simulate
from ata_gym.theory.simulated.slices import slice_means
from ata_gym.typing import Floats, Ints
from ata_gym.utils.validation import whole_number
from ata_policies.steps import decide

ORACLES = ("dynamic-oracle", "dynamic-ofta")
"""The policies with which others are compared.

The first has the least expected round time in each round, and the second the least proxy loss.
"""

REPLICATES = 256
"""The number of rounds that are simulated to estimate an expected round time."""


def abrupt_changes(changes: Iterable[Change], rounds: int) -> tuple[int, ...]:
    """The numbers of rounds before each abrupt change (``Switch`` or ``Jump``), increasing.

    Example:
        >>> abrupt_changes([Switch(every=20), Jump(at=30, workers=(1,), factor=0.1)], rounds=60)
        (20, 30, 40)
    """
    change_rounds: set[int] = set()
    for change in changes:
        if isinstance(change, Switch):
            if change.every is None:
                change_rounds |= set(change.at)
            else:
                change_rounds |= set(range(change.every, rounds, change.every))
        if isinstance(change, Jump):
            change_rounds.add(change.at)
            if change.until is not None:
                change_rounds.add(change.until)
    return tuple(sorted(change for change in change_rounds if 0 < change < rounds))


def _steady_between(scenario: Scenario) -> bool:
    """Whether workers stay as they are between the abrupt changes of a scenario."""
    recorded = any(family.startswith("trace") for family in scenario.catalogue.families)
    return not recorded and all(
        isinstance(change, Switch | Jump) or (isinstance(change, Redraw) and not change.among)
        for change in scenario.changes
    )


class Window(NamedTuple):
    """Rounds around a change, as numbers of rounds played before."""

    first: int
    change: int
    end: int


def windows_around(
    changed_at: Sequence[int],
    rounds: int,
    before: int,
    after: int,
) -> list[Window]:
    """Return the window of each change.

    A window is shorter where an end of the episode or another change is near, so that no change is
    in the window of another one.

    Args:
        changed_at: The number of rounds before each change, increasing.
        rounds: The rounds of an episode.
        before: The number of rounds in the longest window before a change.
        after: The number of rounds in the longest window after a change.
    """
    edges = [0, *changed_at, rounds]
    return [
        Window(max(low, change - before), change, min(high, change + after))
        for low, change, high in zip(edges, changed_at, edges[2:], strict=False)
    ]


@dataclass(frozen=True)
class TrackedExperiment(Experiment):
    """An experiment whose rounds around changes are recorded; it ends with the last of them.

    Make one with :meth:`around`.
    """

    changed_at: tuple[int, ...] = ()
    """The number of rounds before each change, increasing."""
    before: int = 0
    """The number of rounds in the longest window before a change."""
    after: int = 0
    """The number of rounds in the longest window after a change."""

    @classmethod
    def around(
        cls,
        experiment: Experiment,
        changes: Iterable[int] | None = None,
        *,
        before: int,
        after: int,
    ) -> "TrackedExperiment":
        """Record the rounds of an experiment around its changes.

        Args:
            experiment: What is played.
            changes: The number of rounds before each change; by default the abrupt changes of the
                scenario.
            before: The number of rounds to record before each change.
            after: The number of rounds to record after it.

        Raises:
            ValueError: If nothing changes abruptly, if nothing changes where ``changes`` say so, or
                if workers may be away or follow the load.
        """
        scenario = experiment.scenario
        if scenario.faulty:
            raise ValueError(
                "workers of this scenario may be away or die: then no round has a best allocation",
            )
        if scenario.follows_load:
            raise ValueError(
                "workers of this scenario follow the load, and each policy meets the workers that"
                " it has made: then no two policies have the same best allocation to follow",
            )
        abrupt = abrupt_changes(scenario.changes, experiment.rounds)
        if changes is None:
            changed_at = abrupt
            if not changed_at:
                raise ValueError(
                    f"nothing changes abruptly within {experiment.rounds:,} rounds of"
                    f" {experiment.sizes.title}: choose a scenario in which workers trade their"
                    " speeds or jump, such as changing-permuted-linear-n51, or name the round with"
                    " --change (in Python changes=...)",
                )
        else:
            changed_at = tuple(sorted({whole_number("change", change) for change in changes}))
            if not changed_at:
                raise ValueError("name at least one change, or leave changes=... out")
            if changed_at[-1] >= experiment.rounds:
                raise ValueError(
                    f"change must be below the number of rounds, {experiment.rounds:,}, not"
                    f" {changed_at[-1]:,}",
                )
            unexpected = sorted({*changed_at} - {*abrupt})
            if unexpected and _steady_between(scenario):
                if abrupt:
                    advice = "leave --change out (in Python changes=...)"
                else:
                    advice = "choose a scenario that changes"
                raise ValueError(
                    f"nothing changes in {experiment.sizes.title} after {unexpected[0]:,} rounds,"
                    f" so that no policy has anything to follow: {advice}",
                )
        arguments = {field.name: getattr(experiment, field.name) for field in fields(Experiment)}
        arguments["rounds"] = min(experiment.rounds, changed_at[-1] + whole_number("after", after))
        tracked = cls(
            **arguments, changed_at=changed_at, before=whole_number("before", before), after=after
        )
        # windows may be shorter than was asked for
        longest_before = max(window.change - window.first for window in tracked.windows())
        longest_after = max(window.end - window.change for window in tracked.windows())
        return replace(tracked, before=longest_before, after=longest_after)

    def windows(self) -> list[Window]:
        """The windows around the changes."""
        return windows_around(self.changed_at, self.rounds, self.before, self.after)

    def means_before(self) -> Floats:
        """Mean task times of the first seed's workers before the first change, shape (n,).

        They are means over the rounds of the window before it.
        """
        window = self.windows()[0]
        envs = self.make_envs("ata_gym/TaskAllocation-v0", rows=1)
        envs.reset(seed=self.seed)
        n = self.scenario.pool.n
        # how workers change does not depend on the allocation: all tasks go to the first worker
        allocation = self.scenario.budget * np.eye(1, n, dtype=np.int64)
        total = np.zeros(n)
        for k in range(window.change):
            if k >= window.first:
                total += envs.unwrapped.means()[0]  # type: ignore[attr-defined]
            envs.step(allocation)
        return total / (window.change - window.first)

    def record_at(self) -> NDArray[np.int64]:
        window_rounds = [np.arange(window.first, window.end) for window in self.windows()]
        # windows count rounds played before, and records count rounds from 1
        return np.unique(np.concatenate(window_rounds)) + 1

    def config(self) -> Config:
        return super().config() | {
            "changed_at": list(self.changed_at),
            "before": self.before,
            "after": self.after,
        }

    def try_out(self, policy: str) -> None:
        env_id = ata_policies.load(policy).env_id
        if "TaskAllocation" not in env_id:
            raise ValueError(
                f"{policy} plays {env_id}: only allocations that sum to the budget can be tracked",
            )
        super().try_out(policy)


class ExpectedTimes:
    """Expected round times under the distributions of a round.

    They are means over ``REPLICATES`` simulated rounds, the same ones for all allocations, with an
    error of about 1 %. Outliers and noise in common are left out.
    """

    def __init__(self, pool: Pool, budget: int) -> None:
        self.budget = budget
        self.pool = pool
        self.times = slice_means(pool, REPLICATES)
        self.by_round = set(pool.families) == {"trace-by-round"}
        if pool.latency is None:
            self.latency = np.zeros((pool.n, 1))
            self.late_by_round = np.zeros(pool.n, np.bool_)
        else:
            self.latency = slice_means(pool.latency, REPLICATES)
            self.late_by_round = np.isin(pool.latency.families, "trace-by-round")
        self._known: dict[bytes, float] = {}

    def __call__(self, tasks: Ints, conditions: Conditions) -> Floats:
        """Expected round times of allocations, one for each row.

        Args:
            tasks: The allocations, shape (E, n).
            conditions: The conditions of the rows.

        Returns:
            The expected round times, shape (E,).
        """
        distribution = conditions.distribution
        # what is recorded for the round, or 0 where the time or the latency is drawn
        recorded = np.where(self.by_round, conditions.means(self.pool), 0.0)
        late = conditions.mean_latency(self.pool)
        late = np.where(self.late_by_round[distribution], late, 0.0)
        parts = tasks, late, recorded, conditions.latency_factor, conditions.factor, distribution
        return np.array([self._of_row(*row) for row in zip(*parts, strict=True)])

    def _of_row(self, tasks: Ints, *workers: Any) -> float:
        # the time depends only on the tasks of each distribution and its factors, whoever has which
        order = np.lexsort(workers)
        tasks = tasks[order]
        late, recorded, latency_factor, factor, distribution = (part[order] for part in workers)
        parts = tasks, late, recorded, latency_factor, factor, distribution
        key = b"".join(part.tobytes() for part in parts)
        if key not in self._known:
            if self.by_round:
                times = recorded[:, None]
            else:
                times = self.times[distribution] * factor[:, None]
            latency = None
            if self.pool.latency is not None:
                latency = self.latency[distribution] * latency_factor[:, None]
                by_round = self.late_by_round[distribution, None]
                latency = np.where(by_round, late[:, None], latency)
            simulated = simulate(times, tasks[None], self.budget, REPLICATES, latency)
            self._known[key] = simulated.round_time.item()
        return self._known[key]


SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    # the seed of the row
    "seed": pl.Int64,
    # counted from 1
    "round": pl.Int64,
    "round_time": pl.Float64,
    # the expected round time of the allocation, under the distributions of the round
    "expected": pl.Float64,
    # the expected round time of each oracle's allocation
    **dict.fromkeys(ORACLES, pl.Float64),
    # proxy losses above the least possible one, added up since the first round
    "regret": pl.Float64,
    # the tasks of each worker in the round
    "tasks": pl.List(pl.Int64),
}
"""The columns of a policy's records, one row for each seed and round of a window."""


class TrackedRun(PolicyRun):
    """A policy whose rounds around the changes are recorded.

    Where all workers replay a trace by round, the expected round times follow from the recorded
    times, and are exact.
    """

    schema = SCHEMA

    def __init__(self, experiment: Experiment, policy: str) -> None:
        super().__init__(experiment, policy)
        pool = experiment.scenario.catalogue
        budget = experiment.scenario.budget
        if set(pool.families) == {"trace-by-round"} and pool.latency is None:
            self.expected_times = None
        else:
            self.expected_times = ExpectedTimes(pool, budget)
        self.oracles: list[Any] = [ata_policies.make(oracle, self.envs) for oracle in ORACLES]
        self.plans: list[Any] = [None] * len(ORACLES)
        """The states of the oracles, which a checkpoint leaves out: they can be computed anew."""

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        floats = dict.fromkeys(("round_time", "expected", *ORACLES, "regret"), ("f8",))
        return {**floats, "tasks": ("i8", self.experiment.scenario.pool.n)}

    def measure(self) -> dict[str, NDArray[Any]]:
        if self.expected_times is None:
            # in a recorded round a worker's tasks all take the same time: its mean
            measured = super().measure()
            expected = {
                "expected": proxy_loss(measured["tasks"], self.means),
                **dict.fromkeys(ORACLES, self.least),
            }
            return measured | expected
        # of the round that is played below
        conditions = self.bare.conditions()
        oracle_tasks = {}
        for k, oracle in enumerate(ORACLES):
            oracle_tasks[oracle], self.plans[k] = decide(
                self.oracles[k],
                self.envs,
                self.observation,
                self.plans[k],
            )
        measured = super().measure()
        allocations = {"expected": measured["tasks"], **oracle_tasks}
        return measured | {
            name: self.expected_times(tasks, conditions) for name, tasks in allocations.items()
        }
