"""An experiment as data: everything that a policy's result depends on, but the policy."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple, Self

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

import ata_policies
from ata_gym.changes import Load, Redraw
from ata_gym.pools import Pool
from ata_gym.scenarios import Scenario, resolve
from ata_gym.utils.errors import explained, place_of
from ata_gym.utils.validation import whole_number
from ata_policies.registry import is_of_zoo
from ata_policies.steps import Step, play

Config = dict[str, Any]

_ROWS_TRIED = 3
"""The rows of a batch of a user's policy of which each is compared with the row alone."""
_DECISIONS_TRIED = 40
"""The decisions that are compared, at most."""

GROUPS = 100
"""The largest number of groups of workers of which the tasks are recorded."""


class Sizes(NamedTuple):
    """The name and the sizes of an experiment, as tables, pictures and pages show them."""

    title: str
    """The name of the scenario."""
    workers: int
    budget: int
    rounds: int
    seeds: int
    first_seed: int
    price: float
    unit_costs: tuple[float, float] | None = None
    """The least and the largest price of a unit of a worker's time; None where all are equal."""

    @property
    def about(self) -> str:
        """The scenario's name, workers n and budget B, for the titles of tables and pictures."""
        return f"{self.title}: n = {self.workers}, B = {self.budget}"

    @property
    def length(self) -> str:
        """The number of rounds and the number of seeds, in words."""
        return f"{plural(self.rounds, 'round')}, {plural(self.seeds, 'seed')}"

    def facts(self) -> list[tuple[str, str]]:
        """Return each size with its name first, for a page."""
        return [
            ("workers n", f"{self.workers:,}"),
            ("budget B", f"{self.budget:,}"),
            ("rounds", f"{self.rounds:,}"),
            ("seeds", seeds_in_words(self.seeds, self.first_seed)),
            ("price", f"{self.price:g}"),
        ]


@dataclass(frozen=True)
class Experiment:
    """A scenario, a number of rounds, and a batch of seeds; :meth:`on_scenario` makes one.

    Policies of all env ids play it.

    Raises:
        ValueError: If a number is out of range, the scenario draws prices, or the observations
            would not fit into the machine's memory.

    Example:
        >>> experiment = Experiment.on_scenario("icml2025-regret", rounds=1000, seeds=4)
        >>> experiment.scenario.budget, experiment.record_at()[-3:]
        (5, array([ 933,  966, 1000]))
    """

    scenario: Scenario
    """What is played. Its horizon does not count, since ``rounds`` does.

    Results do not depend on its name.
    """
    rounds: int
    """The rounds of an episode."""
    seeds: int
    """The number of episodes, which are played side by side as rows of one vector env.

    Their seeds are ``seed``, ``seed + 1``, and so on.
    """
    seed: int = 0
    """The seed of the first episode."""
    points: int = 200
    """The largest number of recorded rounds; they are log-spaced."""
    also: tuple[int, ...] = ()
    """Further rounds to record, counted from 1."""

    def __post_init__(self) -> None:
        for name, minimum in {"rounds": 1, "seeds": 1, "seed": 0, "points": 1}.items():
            whole_number(name, getattr(self, name), minimum)
        if not all(
            1 <= whole_number("also", recorded_round) <= self.rounds for recorded_round in self.also
        ):
            raise ValueError(f"also must name rounds from 1 to {self.rounds:,}, not {self.also}")
        if any(
            isinstance(change, Redraw) and change.price is not None
            for change in self.scenario.changes
        ):
            raise ValueError(
                "policies know one price, and this scenario draws one for each episode: leave out"
                " price=... of Redraw, and give the scenario, or the experiment, a price",
            )

    @classmethod
    def on_scenario(
        cls,
        scenario: str | Scenario,
        *,
        seeds: int,
        rounds: int | None = None,
        budget: int | None = None,
        seed: int = 0,
        price: float | None = None,
    ) -> Self:
        """Make the experiment of a scenario, which is given or named.

        Args:
            scenario: A scenario, or the name of one.
            seeds: The number of episodes.
            rounds: The rounds of an episode. By default they are the scenario's horizon, or, where
                it has none and replays recorded times, as many as the records hold.
            budget: Results that a round needs, by default the scenario's.
            seed: The seed of the first episode.
            price: What a unit of worker time costs in units of runtime, by default the scenario's.

        Raises:
            ValueError: If there is no such scenario, or the number of rounds is not known.
        """
        resolved_scenario = resolve(scenario, budget=budget, price=price)
        if rounds is None:
            episode_rounds = resolved_scenario.horizon
        else:
            episode_rounds = rounds
        if episode_rounds is None and any(
            family.startswith("trace") for family in resolved_scenario.pool.families
        ):
            episode_rounds = recorded_rounds(resolved_scenario.pool, resolved_scenario.budget)
        return cls(resolved_scenario, whole_number("rounds", episode_rounds), seeds, seed)

    @property
    def sizes(self) -> Sizes:
        """Its name and sizes."""
        scenario = self.scenario
        costs = scenario.unit_costs
        if costs is None:
            cost_range = None
        else:
            cost_range = (float(min(costs)), float(max(costs)))
        return Sizes(
            scenario.name or "a scenario without a name",
            scenario.pool.n,
            scenario.budget,
            self.rounds,
            self.seeds,
            self.seed,
            scenario.price,
            cost_range,
        )

    def config(self) -> Config:
        """Return everything that a policy's result depends on, as plain data.

        Equal configurations give results of the same bytes. The pool is there as a hash.
        """
        data = self.scenario.to_data()
        data["pool"] = hashlib.sha256(json.dumps(data["pool"]).encode()).hexdigest()
        del data["horizon"]
        data |= {name: getattr(self, name) for name in ("rounds", "seeds", "seed", "points")}
        if self.also:
            data["also"] = list(self.also)
        return data

    def record_at(self) -> NDArray[np.int64]:
        """Return the recorded rounds, counted from 1, shape (points,), rising.

        They are log-spaced up to the last round; the rounds of ``also`` are among them.
        """
        return log_spaced(self.rounds, self.points, self.also)

    def make_envs(
        self,
        env_id: str,
        rows: int | None = None,
    ) -> gym.vector.VectorEnv[Any, Any, Any]:
        """Make one vector env with a row for each seed, or with ``rows`` rows.

        It shows signals where the scenario has load.

        Args:
            env_id: The Gymnasium id of the env, such as ``ata_gym/TaskRace-v0``.
            rows: The number of rows, by default the number of seeds.
        """
        if rows is None:
            rows = self.seeds
        signals = any(isinstance(change, Load) for change in self.scenario.changes)
        return gym.make_vec(
            env_id,
            num_envs=rows,
            scenario=self.scenario,
            horizon=self.rounds,
            signals=signals,
        )

    def try_out(self, policy: str) -> None:
        """Make a policy and take one step, to refuse a policy that cannot play.

        The kernels that the step compiles are kept for other processes.

        Raises:
            ValueError: If the policy cannot be made, or fails in the first round.
        """
        envs = self.make_envs(ata_policies.load(policy).env_id, rows=1)
        tried = None
        try:
            tried = ata_policies.make(policy, envs, seed=self.seed)
            next(play(tried, envs, self.seed))
        except MemoryError:
            raise
        except (Exception, SystemExit) as error:
            # A policy of the user's may raise anything.
            # A ValueError that no code of the user's raised is ours, and already has a sentence.
            if tried is None and isinstance(error, ValueError) and place_of(error) is None:
                raise
            if tried is None:
                failure = "cannot be made"
            else:
                failure = "fails in the first round"
            raise ValueError(f"{policy} {failure}: {explained(error)}") from error
        finally:
            envs.close()

    def dependence(self, policy: str) -> str:
        """Return what shows that the seeds of a policy are not independent, or "" if nothing does.

        In the first rounds, it must decide as before when it is played again, and a row of a small
        batch as it does alone. Policies of the zoo are not tried, since tests hold that they do.

        Args:
            policy: The name of a policy that was played.
        """
        kind = ata_policies.load(policy)
        if kind.privileged or is_of_zoo(kind):
            return ""
        # many policies first try each worker, whatever they have seen
        decisions = self.scenario.pool.n // self.scenario.budget + 5
        envs = self.make_envs(kind.env_id, rows=_ROWS_TRIED)
        try:
            batch = ata_policies.make(policy, envs, seed=self.seed)
            steps = [*islice(play(batch, envs, self.seed), min(decisions, _DECISIONS_TRIED))]
            alike_alone = []
            for row in range(_ROWS_TRIED):
                alone = ata_policies.make(policy, envs, seed=self.seed + row)
                alike_alone.append(_decides_alike(alone, steps, slice(row, row + 1)))
            alike_again = _decides_alike(batch, steps, slice(None))
        except MemoryError:
            raise
        except (Exception, SystemExit):
            # its failure is another fault, which is said where it is played
            return ""
        finally:
            envs.close()
        if not alike_again:
            difference = "when it is played again"
        elif not all(alike_alone):
            difference = "for a row alone than for it in a batch"
        else:
            return ""
        return (
            f"{policy} decides otherwise {difference}: its seeds are not independent, its results"
            " do not repeat, or the rounding of its network depends on the size of the batch."
            " ata-gym check or ata_policies.check_policy names the fault."
        )


def _decides_alike(policy: Any, steps: Sequence[Step], rows: slice) -> bool:
    """Whether a policy, from the beginning, takes the actions of some rows again."""
    state = None
    for step in steps:
        observation = {name: field[rows] for name, field in step.observation.items()}
        action, state = policy.predict(observation, state)
        if not np.array_equal(action, step.action[rows]):
            return False
    return True


def log_spaced(last: int, points: int, also: Sequence[int] = ()) -> NDArray[np.int64]:
    """Return whole numbers from 1 to ``last``, rising, at most ``points`` that are log-spaced.

    Args:
        last: The last number.
        points: The largest number of log-spaced ones.
        also: Further numbers.

    Example:
        >>> log_spaced(100, 3, also=[50]).tolist()
        [1, 10, 50, 100]
    """
    spaced = np.geomspace(1, last, min(points, last)).round().astype(np.int64)
    return np.unique(np.append(spaced, np.array(also, np.int64)))


def plural(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it must be.

    Example:
        >>> plural(1, "seed"), plural(2000, "round")
        ('1 seed', '2,000 rounds')
    """
    if number == 1:
        return f"1 {noun}"
    return f"{number:,} {noun}s"


def seeds_in_words(seeds: int, first_seed: int) -> str:
    """Return how many seeds were played, and which.

    Example:
        >>> seeds_in_words(3, 10), seeds_in_words(1, 10)
        ('3 (10 to 12)', '1 (10)')
    """
    if seeds == 1:
        return f"1 ({first_seed})"
    return f"{seeds:,} ({first_seed} to {first_seed + seeds - 1})"


def recorded_rounds(pool: Pool, budget: int) -> int:
    """Return how many rounds a pool of recorded times holds before a record starts over.

    Where times are recorded by round, it is the number of rounds of the worker with the fewest.
    Where they are recorded by task, it is the number of all recorded tasks over the budget, rounded
    down, but at least 1.
    """
    lengths = pool.distributions.length
    by_round = all(family == "trace-by-round" for family in pool.families)
    if by_round:
        return int(lengths.min())
    return max(1, int(lengths.sum()) // budget)


def group_edges(n: int) -> NDArray[np.int64]:
    """Return where each of the groups of ``n`` workers begins, followed by ``n``.

    There are ``GROUPS`` groups at most, and their sizes differ by at most 1.

    Example:
        >>> group_edges(4).tolist(), np.unique(np.diff(group_edges(250))).tolist()
        ([0, 1, 2, 3, 4], [2, 3])
    """
    groups = min(n, GROUPS)
    return np.arange(groups + 1) * n // groups
