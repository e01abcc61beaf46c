"""One policy on one experiment: play, record, and go on where a killed run stopped."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any, ClassVar

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.allocation import allocate, proxy_loss
from ata_gym.bench import checkpoint
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.store import Folder
from ata_gym.dispatch_space import Dispatch
from ata_gym.files import write_whole
from ata_gym.spaces import Allocation, RaceAllocation

SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "seed": pl.Int64,  # of the row
    "round": pl.Int64,  # counted from 1
    "runtime": pl.Float64,  # round times of rounds 1 to this one, added up
    "total_worker_time": pl.Float64,  # worker times, added up
    "regret": pl.Float64,  # proxy losses above the least possible one, added up; null where there is none, see Run
    "support": pl.Int64,  # workers that started a task in this round
}
"""The columns of a policy's results, one row for each seed and recorded round."""

_STRIDE = 256
"""Steps between two looks at the clock, where a round is no longer."""


class Run:
    """A policy that plays the rows of an experiment.

    Its regret in a round is the proxy loss of its allocation under the exact means of this very round, minus the least
    that any allocation has under them: where workers change, it is against the best allocation of each round, and where
    a trace is replayed by round, against the best for the times recorded there. There is none where allocations need
    not sum to B, and none where workers may be away or die.

    Parameters
    ----------
    experiment
        What to play.
    policy
        The policy's name.
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
        self.recorded = {
            name: np.zeros((len(self.record_at), experiment.seeds, *shape), kind)
            for name, (kind, *shape) in self.quantities().items()
        }
        space = self.envs.single_action_space
        self.steps = experiment.budget if isinstance(space, Dispatch) else 1  # of each round
        pool = experiment.pool
        self.has_regret = isinstance(space, Allocation) and not isinstance(space, RaceAllocation)
        self.has_regret &= not any(change.faulty for change in pool.changes) and bool(np.isfinite(pool.mean()).any())
        self.moving = bool(pool.changes) or "trace-by-round" in pool.families
        self.means, self.least = np.empty(0), np.empty(0)  # of the coming round
        self.regret = np.zeros(experiment.seeds)

    def quantities(self) -> dict[str, tuple[Any, ...]]:
        """What is recorded of each row, by name: its type, and the shape that it has beside points and rows."""
        return {"runtime": ("f8",), "total_worker_time": ("f8",), "regret": ("f8",), "support": ("i8",)}

    def play(self, most: int) -> None:
        """Play up to the next recorded round, but no more than ``most`` rounds."""
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

    def measure(self) -> dict[str, NDArray[Any]]:
        """Play one round; give its quantities."""
        before = self._started()
        info = self._play(1)
        tasks = self._started() - before
        return {**info, "regret": self.regret, "tasks": tasks, "support": np.count_nonzero(tasks, axis=1)}

    def _play(self, rounds: int) -> dict[str, NDArray[Any]]:
        """Play some rounds; give the last info."""
        predict, step = self.policy.predict, self.envs.step
        observation, state, regret = self.observation, self.state, self.regret
        for _ in range(rounds * self.steps):
            if self.has_regret:
                self._look()
            action, state = predict(observation, state)
            observation, _, _, _, info = step(action)
            if self.has_regret:
                regret += proxy_loss(action, self.means) - self.least
        self.observation, self.state = observation, state
        return info

    def _look(self) -> None:
        """Take the means of the coming round and the least proxy loss under them, where they have changed."""
        if self.means.size and not self.moving:
            return
        means = self.bare.means()
        if not np.array_equal(means, self.means):
            best = allocate(np.minimum(means, np.finfo(np.float64).max), self.experiment.budget)
            self.means, self.least = means, proxy_loss(best, means)

    def _started(self) -> NDArray[np.int64]:
        """Tasks that each worker has started in the episode so far, shape (E, n)."""
        started: NDArray[np.int64] = self.bare.checkpoint()["started"]
        return started

    def arrays(self) -> checkpoint.Arrays:
        """Everything that the run remembers."""
        return {
            "round": np.array(self.round),
            "regret": self.regret,
            **checkpoint.flatten("recorded", self.recorded),
            **checkpoint.flatten("observation", self.observation),
            **checkpoint.flatten("state", self.state),
            **checkpoint.flatten("envs", self.bare.checkpoint()),
        }

    def restore(self, arrays: checkpoint.Arrays) -> None:
        """Go on from what :meth:`arrays` gave, bit for bit."""
        _, form = self.policy.predict(self.observation)
        self.round = int(arrays["round"])
        self.regret = arrays["regret"]
        self.recorded = checkpoint.restore("recorded", self.recorded, arrays)
        self.observation = checkpoint.restore("observation", self.observation, arrays)
        self.state = checkpoint.restore("state", form, arrays)
        self.bare.restore(checkpoint.restore("envs", self.bare.checkpoint(), arrays))

    def results(self) -> pl.DataFrame:
        """The records, by seed and round, as the schema says."""
        points, seeds = len(self.record_at), self.experiment.seeds
        columns: dict[str, Any] = {
            name: records.swapaxes(0, 1).reshape(-1, *records.shape[2:]) for name, records in self.recorded.items()
        }
        columns["seed"] = np.repeat(self.experiment.seed + np.arange(seeds), points)
        columns["round"] = np.tile(self.record_at, seeds)
        frame = pl.DataFrame(columns).with_columns(policy=pl.lit(self.name))
        if not self.has_regret:
            frame = frame.with_columns(regret=None)
        return frame.select(pl.col(name).cast(kind) for name, kind in self.schema.items())


def play_to_end(
    experiment: Experiment,
    policy: str,
    folder: Folder,
    run_of: type[Run] = Run,
    *,
    save_every: float = 10.0,
    progress: Callable[[int], None] = lambda _: None,
    stop: Callable[[], bool] = lambda: False,
) -> float | None:
    """Play a policy from its checkpoint, if there is one, to the last round, and leave its results in the folder.

    Parameters
    ----------
    experiment, policy, folder
        What to play, who plays, and where the results go.
    run_of
        How: what is recorded.
    save_every
        Seconds between checkpoints.
    progress
        Told every few milliseconds how many rounds are played.
    stop
        Asked as often; if it says so, the run leaves a checkpoint and ends.

    Returns
    -------
    Seconds spent playing, or None if it was stopped.
    """
    run, saved = run_of(experiment, policy), folder.checkpoint(policy)
    before = 0.0
    if saved.exists():
        arrays = checkpoint.load(saved)
        before = float(arrays["seconds"])
        run.restore(arrays)
    start = last = perf_counter()

    def save(now: float) -> None:
        checkpoint.save(saved, {**run.arrays(), "seconds": np.array(before + now - start)})

    while run.round < experiment.rounds:
        run.play(max(1, _STRIDE // run.steps))
        progress(run.round)
        now = perf_counter()
        if stop():
            save(now)
            return None
        if now - last >= save_every:
            save(now)
            last = perf_counter()
    write_whole(folder.result(policy), run.results().write_parquet)
    saved.unlink(missing_ok=True)
    return before + perf_counter() - start
