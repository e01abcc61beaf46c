"""A policy plays an experiment and records its results, from a checkpoint where there is one."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.bench.experiment import Experiment, group_edges
from ata_gym.bench.runner.failure import located
from ata_gym.bench.store.folder import (
    Folder,
    Product,
    begin,
    discard,
    load_tree,
    save_tree,
    write_frame,
)
from ata_gym.bench.store.provenance import Provenance, provenance
from ata_gym.envs.spaces.allocation import Allocation, RaceAllocation
from ata_gym.envs.spaces.dispatch import Dispatch
from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss
from ata_gym.typing import Floats
from ata_policies.steps import decide, play_on

SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "seed": pl.Int64,  # of the row
    "round": pl.Int64,  # counted from 1
    "runtime": pl.Float64,  # round times of rounds 1 to this one, added up
    "total_worker_time": pl.Float64,  # worker times, added up
    "regret": pl.Float64,  # proxy losses above the least possible, added up; null: see PolicyRun
    "support": pl.Int64,  # workers that started a task in this round
}
"""The columns of a policy's results, one row for each seed and recorded round."""

_KEYS = ("policy", "seed", "round")
"""The columns that say of what a row is."""

# Steps between two readings of the clock. A round that has more steps is played to its end first.
_STRIDE = 256


class PolicyRun:
    """A policy that plays the rows of an experiment.

    The regret of a round is the proxy loss of the allocation under the exact means of this round,
    minus the least proxy loss that any allocation has under them. Where a trace is replayed by
    round, its recorded times are the means. Mean latencies count where workers pay them. Regret is
    null where allocations need not sum to B, where workers may be away or die, and where they
    follow the load.

    ``allocations``, of shape (recorded rounds, groups), holds the tasks that workers start in a
    recorded round, as means over the seeds; it is None where the records themselves hold the tasks.
    The workers of each seed are sorted by their mean task times, the fastest first, and ``edges``
    says where their groups begin.
    """

    schema: ClassVar[dict[str, Any]] = SCHEMA

    def __init__(self, experiment: Experiment, policy: str) -> None:
        self.experiment = experiment
        self.name = policy
        self.envs = experiment.make_envs(ata_policies.load(policy).env_id)
        self.bare: Any = self.envs.unwrapped
        self.policy = ata_policies.make(policy, self.envs, seed=experiment.seed)
        self.observation, _ = self.envs.reset(seed=experiment.seed)
        self.state: Any = None
        self.round = 0
        self.record_at = experiment.record_at()
        scenario = experiment.scenario
        space = self.envs.single_action_space
        # Steps of the env in a round: dispatch is asked at each completion.
        if isinstance(space, Dispatch):
            self.steps = scenario.budget
        else:
            self.steps = 1
        sums_to_budget = isinstance(space, Allocation) and not isinstance(space, RaceAllocation)
        finite = bool(np.isfinite(scenario.pool.mean()).any())
        comparable = not scenario.faulty and not scenario.follows_load
        self.has_regret = sums_to_budget and finite and comparable
        self.recorded = {
            name: np.zeros((len(self.record_at), experiment.seeds, *shape), kind)
            for name, (kind, *shape) in self.quantities().items()
        }
        self.edges = group_edges(scenario.pool.n)
        # Where workers are drawn, each seed has its own order, otherwise one row serves all.
        if scenario.pool_distribution:
            means = self.bare.means()  # type: ignore[attr-defined]
        else:
            means = scenario.pool.mean()[None]
        self.order = np.argsort(means, axis=1, kind="stable")
        recorded_already = "tasks" in self.schema
        if recorded_already:
            self.allocations = None
        else:
            self.allocations = np.zeros((len(self.record_at), len(self.edges) - 1))
        # Of the coming round: exact mean task times, mean latencies, and the least proxy loss.
        self.means = np.empty(0)
        self.latency: Floats | None = None
        self.least = np.empty(0)
        self.regret = np.zeros(experiment.seeds)

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        """Return what is recorded of each row: for each name a dtype, followed by a shape."""
        return {
            name: ("i8" if kind == pl.Int64 else "f8",)
            for name, kind in SCHEMA.items()
            if name not in _KEYS
        }

    def play(self, most: int) -> None:
        """Play up to the next recorded round, but at most ``most`` rounds, and record it."""
        point = int(np.searchsorted(self.record_at, self.round, side="right"))
        last = int(self.record_at[point])
        rounds = min(most, last - self.round)
        self.round += rounds
        recorded = self.round == last
        if rounds > recorded:
            self._play(rounds - recorded)
        # Only the recorded round, the last of these, is measured.
        if recorded:
            measured = self.measure()
            for name, records in self.recorded.items():
                records[point] = measured[name]
            if self.allocations is not None:
                # Tasks of the workers from the fastest to the slowest, summed over each group.
                mean = np.take_along_axis(measured["tasks"], self.order, axis=1).mean(axis=0)
                self.allocations[point] = np.add.reduceat(mean, self.edges[:-1])

    def measure(self) -> dict[str, NDArray[Any]]:
        """Play one round; return its quantities, each with a leading axis of seeds."""
        tasks_before = self.bare.checkpoint()["started"]
        info = self._play(1)
        tasks = self.bare.checkpoint()["started"] - tasks_before
        return {
            **info,
            "regret": self.regret,
            "tasks": tasks,
            "support": np.count_nonzero(tasks, axis=1),
        }

    def _play(self, rounds: int) -> dict[str, NDArray[Any]]:
        """Play some rounds; return the info of the last step."""
        steps = play_on(self.policy, self.envs, self.observation, self.state)
        for _ in range(rounds * self.steps):
            if self.has_regret:
                self._update_means()
            try:
                step = next(steps)
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:
                # A policy of the user's may raise anything.
                position = self.observation, self.state, self.experiment.seed
                raise located(error, self.policy, self.envs, *position) from error
            self.observation = step.next_observation
            self.state = step.state
            if self.has_regret:
                self.regret += proxy_loss(step.action, self.means, self.latency) - self.least
        return step.info

    def _update_means(self) -> None:
        """Find the means of the coming round and the least proxy loss, where they may differ."""
        if self.means.size and self.experiment.scenario.stationary:
            return
        means = self.bare.means()
        latency = None
        catalogue = self.experiment.scenario.catalogue
        if catalogue.latency is not None:
            latency = self.bare.conditions().mean_latency(catalogue)
        same = np.array_equal(means, self.means)
        if latency is not None and self.latency is not None:
            same = same and np.array_equal(latency, self.latency)
        if not same:
            # Scores must be finite, and a mean may be infinite.
            scores = np.minimum(means, np.finfo(np.float64).max)
            best = allocate(scores, self.experiment.scenario.budget, latency=latency)
            self.means = means
            self.latency = latency
            self.least = proxy_loss(best, means, latency)

    def save(self, path: Path, seconds: float) -> None:
        """Write a checkpoint, with the seconds that the run has taken so far."""
        save_tree(path, self._tree(seconds, self.state))

    def restore(self, path: Path) -> float:
        """Continue from a checkpoint, if there is one, bit for bit.

        Returns:
            The seconds that the run had taken; 0 without a checkpoint.
        """
        # A decision that is not played gives a state of the same form as the one to be read.
        _, state = decide(self.policy, self.envs, self.observation)
        tree = load_tree(path, self._tree(0.0, state))
        if tree is None:
            return 0.0
        seconds, rounds, self.regret, records, self.observation, self.state, envs = tree
        self.recorded, self.allocations = records
        self.round = int(rounds)
        self.bare.restore(envs)
        return float(seconds)

    def _tree(self, seconds: float, state: Any) -> tuple[Any, ...]:
        """Return what a checkpoint holds: everything that changes while the policy plays."""
        records = self.recorded, self.allocations
        return (
            seconds,
            self.round,
            self.regret,
            records,
            self.observation,
            state,
            self.bare.checkpoint(),
        )

    def columns(self) -> dict[str, NDArray[Any]]:
        """Return the records by name, each of shape (points, seeds, ...)."""
        return dict(self.recorded)

    def results(self) -> pl.DataFrame:
        """Return the records as a frame with the columns of the schema, by seed and round."""
        points = len(self.record_at)
        seeds = self.experiment.seeds
        columns = self.columns().items()
        # Rows are in the order of seeds, and of rounds within a seed.
        flat = {
            name: records.swapaxes(0, 1).reshape(-1, *records.shape[2:])
            for name, records in columns
        }
        seed = np.repeat(self.experiment.seed + np.arange(seeds), points)
        round = np.tile(self.record_at, seeds)
        frame = pl.DataFrame({"seed": seed, "round": round, **flat}).with_columns(
            policy=pl.lit(self.name),
        )
        if not self.has_regret:
            frame = frame.with_columns(regret=None)
        return frame.select(pl.col(name).cast(kind) for name, kind in self.schema.items())

    def write(self, folder: Folder, made_by: Provenance) -> None:
        """Write the tasks and then the records into a folder, with the code that made them.

        In this order, since the records say that the run has finished.
        """
        if self.allocations is not None:
            schema: dict[str, Any] = {"round": pl.Int64, "tasks": pl.List(pl.Float64)}
            frame = pl.DataFrame(
                {"round": self.record_at, "tasks": self.allocations.tolist()},
                schema,
            )
            write_frame(folder.allocations(self.name), frame, made_by)
        write_frame(folder.result(self.name), self.results(), made_by)


class Job(NamedTuple):
    """A policy to be played on an experiment."""

    experiment: Experiment
    policy: str
    folder: Folder
    """Where its results go."""
    run_of: type[PolicyRun] = PolicyRun
    """What plays the policy and says what is recorded."""

    def product(self) -> Product:
        """Return the files that it makes, and the code that makes them."""
        folder = self.folder
        name = self.policy
        files = folder.result(name), folder.allocations(name), folder.checkpoint(name)
        return Product(self.policy, files, provenance(self.policy, self.run_of.__module__))


def play_to_end(
    job: Job,
    *,
    save_every: float = 10.0,
    progress: Callable[[int], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
    saved: Callable[[Path], None] = lambda _: None,
    made_by: Provenance | None = None,
) -> float | None:
    """Play a job from its checkpoint, if there is one, to the last round; write its results.

    Args:
        job: The policy, the experiment, and the folder for the results.
        save_every: Seconds between two checkpoints.
        progress: It gets the number of rounds played, every few milliseconds.
        stop: It is asked every few milliseconds; on True, the run saves a checkpoint and ends.
        saved: It gets the path of each checkpoint.
        made_by: The provenance that is noted beside the results, by default the present one.

    Returns:
        The seconds spent playing, in earlier runs too; None if it was stopped.

    Raises:
        RuntimeError: If the policy calls ``sys.exit``.
    """
    try:
        run = job.run_of(job.experiment, job.policy)
        checkpoint = job.folder.checkpoint(job.policy)
        made_by = made_by or job.product().by
        earlier_seconds = run.restore(checkpoint)
        if not run.round:
            begin(checkpoint, made_by)
        start = last = perf_counter()
        while run.round < job.experiment.rounds:
            run.play(max(1, _STRIDE // run.steps))
            progress(run.round)
            now = perf_counter()
            stopped = stop()
            if stopped or now - last >= save_every:
                run.save(checkpoint, earlier_seconds + now - start)
                saved(checkpoint)
                last = perf_counter()
            if stopped:
                return None
        run.write(job.folder, made_by)
        discard(checkpoint)
        return earlier_seconds + perf_counter() - start
    except SystemExit as error:
        # It would end the command, and the other jobs with it.
        raise RuntimeError(f"the policy called sys.exit({error.code!r})") from error
