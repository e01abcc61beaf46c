"""A policy plays an experiment, its results are recorded, and a killed run continues from its checkpoint."""

from collections.abc import Callable
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.failure import located
from ata_gym.bench.experiment.provenance import Provenance, provenance
from ata_gym.bench.experiment.store import Folder, Made, begin, discard, load_tree, save_tree, write_frame
from ata_gym.envs.spaces.allocation import Allocation, RaceAllocation
from ata_gym.envs.spaces.dispatch import Dispatch
from ata_gym.theory.allocation.proxy_loss import allocate, proxy_loss
from ata_policies.steps import decide, play_on

SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "seed": pl.Int64,  # of the row
    "round": pl.Int64,  # counted from 1
    "runtime": pl.Float64,  # round times of rounds 1 to this one, added up
    "total_worker_time": pl.Float64,  # worker times, added up
    "regret": pl.Float64,  # proxy losses above the least possible one, added up; or null, see PolicyRun
    "support": pl.Int64,  # workers that started a task in this round
}
"""The columns of a policy's results, one row for each seed and recorded round."""

GROUPS = 100  # groups of workers, at most, of which the tasks are recorded

_STRIDE = 256  # steps between two readings of the clock; a round that has more steps is played to its end first


class PolicyRun:
    """A policy that plays the rows of an experiment.

    The regret of a round is the proxy loss of the allocation under the exact means of this round, minus the least proxy
    loss that any allocation has under them. Where a trace is replayed by round, its recorded times are the means.
    Regret is null where allocations need not sum to B, and where workers may be away or die.

    ``allocations``, of shape (recorded rounds, groups), holds the tasks that workers start in a recorded round, as
    means over the seeds, unless the records hold them. The workers of each seed are sorted by their mean task times,
    the fastest first, and ``edges`` says where their groups begin.
    """

    schema: ClassVar[dict[str, Any]] = SCHEMA

    def __init__(self, experiment: Experiment, policy: str) -> None:
        self.experiment, self.name = experiment, policy
        self.envs = experiment.make_envs(ata_policies.load(policy).env_id)
        self.bare: Any = self.envs.unwrapped
        self.policy = ata_policies.make(policy, self.envs, seed=experiment.seed)
        self.observation, _ = self.envs.reset(seed=experiment.seed)
        self.state: Any = None
        self.round = 0
        self.record_at = experiment.record_at()
        scenario, space = experiment.scenario, self.envs.single_action_space
        self.steps = scenario.budget if isinstance(space, Dispatch) else 1  # of each round
        sums_to_budget = isinstance(space, Allocation) and not isinstance(space, RaceAllocation)
        finite = bool(np.isfinite(scenario.pool.mean()).any())
        self.has_regret = sums_to_budget and finite and not scenario.faulty
        self.recorded = {
            name: np.zeros((len(self.record_at), experiment.seeds, *shape), kind)
            for name, (kind, *shape) in self.quantities().items()
        }
        self.edges = edges(scenario.pool.n)
        means = self.bare.means() if scenario.drawn else scenario.pool.mean()[None]  # type: ignore[attr-defined]
        self.order = np.argsort(means, axis=1, kind="stable")
        recorded_already = "tasks" in self.schema
        self.allocations = None if recorded_already else np.zeros((len(self.record_at), len(self.edges) - 1))
        self.means, self.least = np.empty(0), np.empty(0)  # of the coming round
        self.regret = np.zeros(experiment.seeds)

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        """What is recorded of each row, by name: its dtype and shape."""
        return {"runtime": ("f8",), "total_worker_time": ("f8",), "regret": ("f8",), "support": ("i8",)}

    def play(self, most: int) -> None:
        """Play up to the next recorded round, but at most ``most`` rounds."""
        point = int(np.searchsorted(self.record_at, self.round, side="right"))
        last = int(self.record_at[point])
        rounds = min(most, last - self.round)
        self.round += rounds
        recorded = self.round == last
        if rounds > recorded:
            self._play(rounds - recorded)
        if recorded:
            measured = self.measure()
            for name, records in self.recorded.items():
                records[point] = measured[name]
            if self.allocations is not None:
                mean = np.take_along_axis(measured["tasks"], self.order, axis=1).mean(axis=0)
                self.allocations[point] = np.add.reduceat(mean, self.edges[:-1])

    def measure(self) -> dict[str, NDArray[Any]]:
        """Play one round; return its quantities."""
        before = self.bare.checkpoint()["started"]
        info = self._play(1)
        tasks = self.bare.checkpoint()["started"] - before
        return {**info, "regret": self.regret, "tasks": tasks, "support": np.count_nonzero(tasks, axis=1)}

    def _play(self, rounds: int) -> dict[str, NDArray[Any]]:  # play some rounds; return the last info
        steps = play_on(self.policy, self.envs, self.observation, self.state)
        for _ in range(rounds * self.steps):
            if self.has_regret:
                self._update_means()
            try:
                step = next(steps)
            except MemoryError:
                raise
            except (Exception, SystemExit) as error:  # a policy of the user's may raise anything
                place = self.observation, self.state, self.experiment.seed
                raise located(error, self.policy, self.envs, *place) from error
            self.observation, self.state = step.observation, step.state
            if self.has_regret:
                self.regret += proxy_loss(step.action, self.means) - self.least
        return step.info

    def _update_means(self) -> None:
        if self.means.size and self.experiment.scenario.stationary:
            return
        means = self.bare.means()
        if not np.array_equal(means, self.means):
            best = allocate(np.minimum(means, np.finfo(np.float64).max), self.experiment.scenario.budget)
            self.means, self.least = means, proxy_loss(best, means)

    def save(self, path: Path, seconds: float) -> None:
        """Write a checkpoint, with the seconds that the run has taken so far."""
        save_tree(path, self._tree(seconds, self.state))

    def restore(self, path: Path) -> float:
        """Continue from a checkpoint, if there is one, bit for bit; return the seconds that the run had taken."""
        _, state = decide(self.policy, self.envs, self.observation)  # of the form of the one to be read
        tree = load_tree(path, self._tree(0.0, state))
        if tree is None:
            return 0.0
        seconds, played, self.regret, records, self.observation, self.state, envs = tree
        self.recorded, self.allocations = records
        self.round = int(played)
        self.bare.restore(envs)
        return float(seconds)

    def _tree(self, seconds: float, state: Any) -> tuple[Any, ...]:
        records = self.recorded, self.allocations
        return seconds, self.round, self.regret, records, self.observation, state, self.bare.checkpoint()

    def columns(self) -> dict[str, NDArray[Any]]:
        """The records by name, each of shape (points, seeds, ...)."""
        return dict(self.recorded)

    def results(self) -> pl.DataFrame:
        """The records, by seed and round, as the schema says."""
        points, seeds = len(self.record_at), self.experiment.seeds
        columns = self.columns().items()
        flat = {name: records.swapaxes(0, 1).reshape(-1, *records.shape[2:]) for name, records in columns}
        seed, round = np.repeat(self.experiment.seed + np.arange(seeds), points), np.tile(self.record_at, seeds)
        frame = pl.DataFrame({"seed": seed, "round": round, **flat}).with_columns(policy=pl.lit(self.name))
        if not self.has_regret:
            frame = frame.with_columns(regret=None)
        return frame.select(pl.col(name).cast(kind) for name, kind in self.schema.items())

    def write(self, folder: Folder, made_by: Provenance) -> None:
        """Write the tasks and then the records into a folder; the records say that the run has finished."""
        if self.allocations is not None:
            schema: dict[str, Any] = {"round": pl.Int64, "tasks": pl.List(pl.Float64)}
            frame = pl.DataFrame({"round": self.record_at, "tasks": self.allocations.tolist()}, schema)
            write_frame(folder.allocations(self.name), frame, made_by)
        write_frame(folder.result(self.name), self.results(), made_by)


def edges(n: int) -> NDArray[np.int64]:
    """Where each of the groups of ``n`` workers begins, which are as equal as can be, followed by ``n``.

    >>> edges(4).tolist(), np.unique(np.diff(edges(250))).tolist()
    ([0, 1, 2, 3, 4], [2, 3])
    """
    groups = min(n, GROUPS)
    return np.arange(groups + 1) * n // groups


class Job(NamedTuple):
    """A policy to be played on an experiment."""

    experiment: Experiment
    policy: str
    folder: Folder  # where its results go
    run_of: type[PolicyRun] = PolicyRun  # what is recorded

    def made(self) -> Made:
        """The files that it makes, and by which code."""
        folder, name = self.folder, self.policy
        files = folder.result(name), folder.allocations(name), folder.checkpoint(name)
        return Made(self.policy, files, provenance(self.policy, self.run_of.__module__))


def play_to_end(
    job: Job, *, save_every: float = 10.0, progress: Callable[[int], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False, saved: Callable[[Path], None] = lambda _: None,
    made_by: Provenance | None = None,
) -> float | None:  # fmt: skip
    """Play a policy from its checkpoint, if there is one, to the last round; leave its results, with ``made_by``.

    Every few milliseconds ``progress`` gets the number of rounds played, and ``stop`` is asked: on True, the run saves
    a checkpoint and ends. ``saved`` gets the path of each checkpoint. Returns the seconds spent playing, or None if it
    was stopped; RuntimeError where the policy calls sys.exit.
    """
    try:
        run, checkpoint = job.run_of(job.experiment, job.policy), job.folder.checkpoint(job.policy)
        made_by = made_by or job.made().by
        before = run.restore(checkpoint)
        if not run.round:
            begin(checkpoint, made_by)
        start = last = perf_counter()
        while run.round < job.experiment.rounds:
            run.play(max(1, _STRIDE // run.steps))
            progress(run.round)
            now, stopped = perf_counter(), stop()
            if stopped or now - last >= save_every:
                run.save(checkpoint, before + now - start)
                saved(checkpoint)
                last = perf_counter()
            if stopped:
                return None
        run.write(job.folder, made_by)
        discard(checkpoint)
        return before + perf_counter() - start
    except SystemExit as error:  # it would end the command, and the other jobs with it
        raise RuntimeError(f"the policy called sys.exit({error.code!r})") from error
