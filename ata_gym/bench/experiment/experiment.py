"""An experiment as data: everything that a policy's result depends on, but the policy."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import ata_policies
from ata_gym.changes import Load, Redraw
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario, resolve
from ata_gym.utils.errors import explained, place_of
from ata_gym.utils.validation import whole_number
from ata_policies.steps import play

Config = dict[str, Any]


@dataclass(frozen=True)
class Experiment:
    """A scenario, a number of rounds, and a batch of seeds; :meth:`on_scenario` makes one.

    Policies of all env ids play it. ValueError if a number is out of range, the scenario draws prices, or the
    observations would not fit into the machine's memory.

    >>> experiment = Experiment.on_scenario("icml2025-regret", rounds=1000, seeds=4)
    >>> experiment.scenario.budget, experiment.record_at()[-3:]
    (5, array([ 933,  966, 1000]))
    """

    scenario: Scenario  # its horizon does not count: ``rounds`` does. Results do not depend on its name.
    rounds: int
    seeds: int  # Episodes, of the seeds ``seed``, ``seed + 1``, ..., played side by side as rows of one vector env
    seed: int = 0
    points: int = 200  # the largest number of recorded rounds; they are log-spaced
    also: tuple[int, ...] = ()  # further rounds to record, counted from 1

    def __post_init__(self) -> None:
        for name, least in {"rounds": 1, "seeds": 1, "seed": 0, "points": 1}.items():
            whole_number(name, getattr(self, name), least)
        if not all(1 <= whole_number("also", each) <= self.rounds for each in self.also):
            raise ValueError(f"also must name rounds from 1 to {self.rounds:,}, not {self.also}")
        if any(isinstance(change, Redraw) and change.price is not None for change in self.scenario.changes):
            raise ValueError(
                "policies know one price, and this scenario draws one for each episode: leave out price=... of Redraw, "
                "and give the scenario, or the experiment, a price"
            )

    @classmethod
    def on_scenario(
        cls, scenario: str | Scenario, *, seeds: int, rounds: int | None = None, budget: int | None = None,
        seed: int = 0, price: float | None = None,
    ) -> Self:  # fmt: skip
        """Play a scenario; rounds, budget and price are its own by default, or as many rounds as a trace holds."""
        found = resolve(scenario, budget=budget, price=price)
        played = found.horizon if rounds is None else rounds
        if played is None and any(family.startswith("trace") for family in found.pool.families):
            played = recorded_rounds(found.pool, found.budget)
        return cls(found, whole_number("rounds", played), seeds, seed)

    @property
    def about(self) -> str:
        """The scenario's name and sizes, as the titles of tables and pictures give them."""
        return f"{self.scenario.name}: n = {self.scenario.pool.n}, B = {self.scenario.budget}"

    @property
    def length(self) -> str:
        """Rounds and seeds, in words."""
        return f"{plural(self.rounds, 'round')}, {plural(self.seeds, 'seed')}"

    def config(self) -> Config:
        """Everything that a policy's result depends on, as plain data; equal configurations give the same bytes."""
        data = self.scenario.to_data()
        data["pool"] = hashlib.sha256(json.dumps(data["pool"]).encode()).hexdigest()
        del data["horizon"]
        data |= {name: getattr(self, name) for name in ("rounds", "seeds", "seed", "points")}
        return data | ({"also": list(self.also)} if self.also else {})

    def record_at(self) -> NDArray[np.int64]:
        """The rounds that are recorded, counted from 1: log-spaced up to the last, and those asked for."""
        spaced = np.geomspace(1, self.rounds, min(self.points, self.rounds))
        return np.unique(np.append(spaced.round().astype(np.int64), np.array(self.also, np.int64)))

    def make_envs(self, env_id: str, rows: int | None = None) -> gym.vector.VectorEnv[Any, Any, Any]:
        """One vector env with a row for each seed, or with ``rows`` rows; it shows signals where the load has some."""
        rows = self.seeds if rows is None else rows
        signals = any(isinstance(change, Load) for change in self.scenario.changes)
        return gym.make_vec(env_id, num_envs=rows, scenario=self.scenario, horizon=self.rounds, signals=signals)

    def try_out(self, policy: str) -> None:
        """Take one step: ValueError for a policy that cannot play. Kernels are compiled for other processes."""
        envs = self.make_envs(ata_policies.load(policy).env_id, rows=1)
        made = None
        try:
            made = ata_policies.make(policy, envs, seed=self.seed)
            next(play(made, envs, self.seed))
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:  # a policy of the user's may raise anything
            if made is None and isinstance(error, ValueError) and place_of(error) is None:
                raise
            what = "cannot be made" if made is None else "fails in the first round"
            raise ValueError(f"{policy} {what}: {explained(error)}") from error
        finally:
            envs.close()


def plural(number: int, noun: str) -> str:
    """A number with its noun.

    >>> plural(1, "seed"), plural(2000, "round")
    ('1 seed', '2,000 rounds')
    """
    return f"{number:,} {noun}{'s' * (number != 1)}"


def recorded_rounds(pool: Pool, budget: int) -> int:
    """How many rounds a pool of recorded times holds before a record starts over.

    It is the number of rounds of the worker with the fewest, or, by task, that of all recorded tasks over the budget.
    """
    lengths = pool.distributions.length
    by_round = all(family == "trace-by-round" for family in pool.families)
    return int(lengths.min()) if by_round else max(1, int(lengths.sum()) // budget)
