"""One policy on one experiment: play, record, and go on where a killed run stopped."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

import ata_policies
from ata_gym.allocation import proxy_loss, proxy_optimal
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
    "regret": pl.Float64,  # proxy losses above the least possible one, added up; null unless allocations sum to B
    "support": pl.Int64,  # workers that started a task in this round
}
"""The columns of a policy's results, one row for each seed and recorded round."""

_STRIDE = 256
"""Steps between two looks at the clock, where a round is no longer."""


class Run:
    """A policy that plays the rows of an experiment.

    Parameters
    ----------
    experiment
        What to play.
    policy
        The policy's name.
    """

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
            name: np.zeros((len(self.record_at), experiment.seeds), kind)
            for name, kind in (("runtime", "f8"), ("total_worker_time", "f8"), ("regret", "f8"), ("support", "i8"))
        }
        space = self.envs.single_action_space
        self.steps = experiment.budget if isinstance(space, Dispatch) else 1  # of each round
        self.has_regret = isinstance(space, Allocation) and not isinstance(space, RaceAllocation)
        self.means = experiment.pool.mean()
        self.least = proxy_loss(proxy_optimal(experiment.pool, experiment.budget), self.means)
        self.regret = np.zeros(experiment.seeds)

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
            before = self._started()
            info = self._play(1)
            now = {**info, "regret": self.regret, "support": np.count_nonzero(self._started() > before, axis=1)}
            for name, records in self.recorded.items():
                records[point] = now[name]

    def _play(self, rounds: int) -> dict[str, NDArray[Any]]:
        """Play some rounds; give the last info."""
        predict, step = self.policy.predict, self.envs.step
        observation, state, regret = self.observation, self.state, self.regret
        for _ in range(rounds * self.steps):
            action, state = predict(observation, state)
            observation, _, _, _, info = step(action)
            if self.has_regret:
                regret += proxy_loss(action, self.means) - self.least
        self.observation, self.state = observation, state
        return info

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
        """The records, by seed and round, as ``SCHEMA`` says."""
        points, seeds = len(self.record_at), self.experiment.seeds
        columns: dict[str, Any] = {name: records.T.ravel() for name, records in self.recorded.items()}
        columns["seed"] = np.repeat(self.experiment.seed + np.arange(seeds), points)
        columns["round"] = np.tile(self.record_at, seeds)
        frame = pl.DataFrame(columns).with_columns(policy=pl.lit(self.name))
        if not self.has_regret:
            frame = frame.with_columns(regret=None)
        return frame.select(pl.col(name).cast(kind) for name, kind in SCHEMA.items())


def play_to_end(
    experiment: Experiment,
    policy: str,
    folder: Folder,
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
    run, saved = Run(experiment, policy), folder.checkpoint(policy)
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
