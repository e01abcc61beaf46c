"""An experiment as data: everything that a policy's result depends on, but the policy."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import ata_gym
import ata_policies
from ata_gym.changes import Load
from ata_gym.checks import whole_number
from ata_gym.pools import Pool, read_trace
from ata_gym.scenarios import Scenario
from ata_gym.scenarios import scenario as find_scenario
from ata_gym.world import World

Config = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A world, a number of rounds, and a batch of seeds.

    Make one with :meth:`on_scenario` or :meth:`on_trace`. Policies of all env ids play it side by side.

    Raises
    ------
    ValueError
        If a number is out of range.

    Examples
    --------
    >>> experiment = Experiment.on_scenario("icml2025-regret", rounds=1000, seeds=4)
    >>> experiment.budget, experiment.record_at()[-3:]
    (5, array([ 933,  966, 1000]))
    """

    title: str
    """What a reader knows the world by; no result depends on it."""
    pool: Pool = field(repr=False)
    budget: int
    """Results B that a round needs."""
    rounds: int
    seeds: int
    """Episodes, of the seeds ``seed``, ``seed + 1``, ..., played side by side as rows."""
    seed: int = 0
    price: float = 0.0
    """What one unit of worker time costs in units of runtime."""
    scenario: Scenario | None = None
    points: int = 200
    """How many rounds are recorded at most, log-spaced."""

    def __post_init__(self) -> None:
        whole_number("rounds", self.rounds, 1)
        whole_number("seeds", self.seeds, 1)
        whole_number("seed", self.seed, 0)
        whole_number("points", self.points, 1)
        World.of(None, self.pool, self.budget, self.rounds, self.price)

    @classmethod
    def on_scenario(
        cls,
        scenario: str | Scenario,
        *,
        seeds: int,
        rounds: int | None = None,
        budget: int | None = None,
        seed: int = 0,
        price: float = 0.0,
    ) -> Experiment:
        """Play a named world; rounds and budget are the scenario's by default."""
        world = find_scenario(scenario) if isinstance(scenario, str) else scenario
        return cls(
            title=world.name,
            pool=world.pool,
            budget=world.budget if budget is None else budget,
            rounds=world.horizon if rounds is None else rounds,
            seeds=seeds,
            seed=seed,
            price=price,
            scenario=world,
        )

    @classmethod
    def on_trace(
        cls,
        path: str | PathLike[str],
        *,
        worker: str,
        duration: str,
        budget: int,
        seeds: int,
        round: str | None = None,
        rounds: int | None = None,
        seed: int = 0,
        price: float = 0.0,
    ) -> Experiment:
        """Replay recorded times, by round where a round column is named; a record that ends starts over.

        Rounds are by default as many as the trace holds: by round those recorded, by task all recorded tasks
        divided by the budget.
        """
        pool = read_trace(path, worker=worker, duration=duration, round=round)
        World.of(None, pool, budget, None, price)  # a bad budget is refused before it divides
        return cls(
            title=Path(path).name,
            pool=pool,
            budget=budget,
            rounds=recorded_rounds(pool, budget) if rounds is None else rounds,
            seeds=seeds,
            seed=seed,
            price=price,
        )

    def config(self) -> Config:
        """Everything that a policy's result depends on, as plain data; two equal ones give the same bytes."""
        return {
            "ata-gym": ata_gym.__version__,
            **self._published(),
            "pool": hashlib.sha256(json.dumps(self.pool.to_data()).encode()).hexdigest(),
            "budget": self.budget,
            "rounds": self.rounds,
            "seeds": self.seeds,
            "seed": self.seed,
            "price": float(self.price),
            "points": self.points,
        }

    def _published(self) -> Config:
        """What a policy may read off the scenario."""
        world = self.scenario
        return {} if world is None else {"scenario": world.name, "alpha": world.alpha, "eta": world.eta}

    def record_at(self) -> NDArray[np.int64]:
        """The rounds that are recorded, counted from 1, log-spaced up to the last."""
        spaced = np.geomspace(1, self.rounds, min(self.points, self.rounds))
        return np.unique(spaced.round().astype(np.int64))

    def make_envs(self, env_id: str, rows: int | None = None) -> gym.vector.VectorEnv[Any, Any, Any]:
        """One vector env with a row for each seed, or with ``rows`` rows; it shows signals where the load has some."""
        world: dict[str, Any] = {"pool": self.pool} if self.scenario is None else {"scenario": self.scenario}
        return gym.make_vec(
            env_id,
            num_envs=self.seeds if rows is None else rows,
            budget=self.budget,
            horizon=self.rounds,
            price=self.price,
            signals=any(isinstance(change, Load) for change in self.pool.changes),
            **world,
        )

    def try_out(self, policy: str) -> None:
        """Take one step, so that a policy that cannot play is refused before anything is run.

        It also leaves the compiled kernels in numba's cache for the processes that follow.

        Raises
        ------
        ValueError
            If there is no such policy, or it cannot play this world.
        """
        envs = self.make_envs(ata_policies.load(policy).env_id, rows=1)
        observation, _ = envs.reset(seed=self.seed)
        action, _ = ata_policies.make(policy, envs, seed=self.seed).predict(observation)
        envs.step(action)
        envs.close()


def recorded_rounds(pool: Pool, budget: int) -> int:
    """How many rounds a pool of recorded times holds before a record starts over.

    By round, those of its shortest worker. By task it depends on the allocations; then it is all recorded tasks
    divided by the budget.

    >>> from ata_gym.pools import trace
    >>> recorded_rounds(trace([[1.0, 2.0, 3.0], [2.0, 2.0, 2.0]]), budget=2)
    3
    """
    lengths = pool.laws.length
    by_round = all(family == "trace-by-round" for family in pool.families)
    return int(lengths.min()) if by_round else max(1, int(lengths.sum()) // budget)
