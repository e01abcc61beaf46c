"""A training as data: the agent, the scenario, the length, and the policies to compare with."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import polars as pl

import ata_policies
from ata_gym.bench.experiment import Config, Experiment
from ata_gym.bench.report.statistics import Estimate
from ata_gym.envs.spaces.dispatch import Dispatch
from ata_gym.rl.specification import AgentSpec
from ata_gym.scenarios import Scenario
from ata_gym.scenarios.for_agents import SPLITS
from ata_gym.typing import Floats
from ata_gym.utils.validation import whole_number
from ata_policies.policy import Policy
from ata_policies.registry import default_name, load
from ata_policies.steps import play as steps_of_play

UNIFORM = "uta"
"""The policy to whose cost the others are compared: every worker gets the same."""
PUBLISHED = "ata-icml"
"""The published policy among the references."""
_ORACLES = {
    "allocation": "dynamic-oracle",
    "race": "race-dynamic-oracle",
    "dispatch": "dispatch-dynamic-oracle",
}
_PLAIN_POLICIES = {"allocation": (), "race": ("gta",), "dispatch": ("dispatch-gta",)}

AGENT = "agent"
"""The name of the trained agent among policies: the best one on the validation seeds."""
START = "agent-start"
"""The name of the agent before training."""
END = "agent-end"
"""The name of the agent after the last step."""

SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "seed": pl.Int64,  # of the row
    "runtime": pl.Float64,  # of the whole episode
    "total_worker_time": pl.Float64,
    "cost": pl.Float64,  # runtime + price x total worker time
}
"""The columns of the results of policies on a split: a row for each policy and seed."""


_NUMBERS = ("steps", "rows", "evaluations", "validation_rows", "test_rows")


class Evaluations(NamedTuple):
    """What agents and references have got, in and after a training."""

    curve: pl.DataFrame
    """A row for each evaluation, with the columns ``steps`` and ``cost/<reference>``.

    The costs are geometric means of ratios over the validation seeds.
    """
    validation: pl.DataFrame
    """The results of the references on the validation seeds; columns as ``SCHEMA``."""
    test: pl.DataFrame
    """The results of the agents and the references on the test seeds; columns as ``SCHEMA``.

    The best agent, the first one and the last one come before the references.
    """


@dataclass(frozen=True)
class Learning:
    """An agent, a scenario with a horizon, and how the agent is trained and evaluated.

    Raises:
        ValueError: If a number is out of range; each split has a million seeds.
    """

    agent: AgentSpec
    """The agent to train."""
    scenario: Scenario
    """The scenario, which must have a horizon."""
    steps: int
    """The steps of training over all rows; the last rollout is finished."""
    rows: int = 128
    """The episodes side by side in training, of the split "train", from the agent's seed on."""
    evaluations: int = 20
    """The evaluations in training, at most one after each rollout; one more comes before it."""
    validation_rows: int = 64
    """The seeds of the split "validation" that are played."""
    test_rows: int = 256
    """The seeds of the split "test" that are played."""

    def __post_init__(self) -> None:
        for name in _NUMBERS:
            whole_number(name.replace("_", "-"), getattr(self, name))
        whole_number("seed", self.agent.seed, 0)
        ends = {
            "train": self.agent.seed + self.rows,
            "validation": self.validation_rows,
            "test": self.test_rows,
        }
        for split, rows in ends.items():
            if rows > len(SPLITS[split]):
                raise ValueError(
                    f"the split {split} has {len(SPLITS[split]):,} seeds, and {rows:,} were"
                    " asked for",
                )
        if self.scenario.horizon is None:
            raise ValueError(
                f"an agent is trained in episodes, and {self.scenario.name} has no horizon: give"
                " --rounds",
            )
        if self.evaluations > self.steps:
            raise ValueError(
                f"evaluations must be at most the steps, {self.steps}, not {self.evaluations}",
            )

    def config(self) -> Config:
        """The data that the results depend on, as plain data."""
        data = self.episodes("train", 1).config()
        for name in ("seeds", "points", "seed"):
            del data[name]
        numbers = {name: getattr(self, name) for name in _NUMBERS}
        pool = self.scenario.pool
        sees = {"n": pool.n, "latency": pool.latency is not None}
        return {**data, **sees, **self.agent.config(), **numbers}

    def episodes(self, split: str, rows: int) -> Experiment:
        """Return the first episodes of a split, as an experiment for policies of any env.

        Args:
            split: The name of the split.
            rows: The number of episodes.
        """
        horizon = self.scenario.horizon
        assert horizon is not None
        return Experiment(self.scenario, horizon, rows, SPLITS[split].start)

    @cached_property
    def validation(self) -> Experiment:
        """The episodes on which the best agent is chosen."""
        return self.episodes("validation", self.validation_rows)

    @cached_property
    def test(self) -> Experiment:
        """The episodes that are played once, at the end."""
        return self.episodes("test", self.test_rows)

    def roles(self) -> dict[str, str]:
        """The policies whose costs divide the others, by role: uniform, default and oracle."""
        return {
            "uniform": UNIFORM,
            "default": default_name(self.agent.env_id),
            "oracle": _ORACLES[self.agent.env],
        }

    def references(self) -> tuple[str, ...]:
        """The policies that the agent is compared with.

        They are uniform, ATA, plain policies of the env, its default and its oracle.
        """
        roles = self.roles()
        return (
            roles["uniform"],
            PUBLISHED,
            *_PLAIN_POLICIES[self.agent.env],
            roles["default"],
            roles["oracle"],
        )

    def due(self, steps: int) -> int:
        """The number of evaluations due after ``steps`` steps, without the one before training."""
        return min(steps, self.steps) * self.evaluations // self.steps


def play(policy: str | type[Policy], experiment: Experiment, name: str = AGENT) -> pl.DataFrame:
    """Play each episode to its end, and return the results; columns as ``SCHEMA``.

    Args:
        policy: The name of a policy, or a class.
        experiment: The episodes.
        name: The name of a class in the results.
    """
    policy_class: Any
    if isinstance(policy, str):
        policy_class = load(policy)
    else:
        policy_class = policy
    envs = experiment.make_envs(policy_class.env_id)
    try:
        if isinstance(policy, str):
            name = policy
            playing = ata_policies.make(policy, envs, seed=experiment.seed)
        else:
            playing = policy(ata_policies.Setting.from_env(envs), seed=experiment.seed)
        # A round of dispatch has a step for each result.
        if isinstance(envs.single_action_space, Dispatch):
            steps = experiment.scenario.budget
        else:
            steps = 1
        *_, last_step = islice(
            steps_of_play(playing, envs, experiment.seed), experiment.rounds * steps
        )
    finally:
        envs.close()
    rows = experiment.seeds
    price = experiment.scenario.price
    runtime = last_step.info["runtime"]
    worker_time = last_step.info["total_worker_time"]
    columns = [
        [name] * rows,
        experiment.seed + np.arange(rows),
        runtime,
        worker_time,
        runtime + price * worker_time,
    ]
    return pl.DataFrame(dict(zip(SCHEMA, columns, strict=True)), SCHEMA)


def playable(learning: Learning) -> tuple[list[str], dict[str, str]]:
    """Return the references that can play, and why the others cannot."""
    names = []
    refusals = {}
    for name in learning.references():
        try:
            learning.validation.try_out(name)
        except ValueError as error:
            refusals[name] = str(error)
        else:
            names.append(name)
    return names, refusals


def ratios(
    divisors: pl.DataFrame,
    results: pl.DataFrame,
    quantity: str = "cost",
) -> dict[str, Estimate]:
    """Return the ratios of a policy's values to the values of each divisor, on the same seeds.

    Args:
        divisors: Rows of ``SCHEMA`` for the policies that divide.
        results: Rows of ``SCHEMA`` for the policy.
        quantity: The column of the values.
    """
    policy_values = values(results, results["policy"][0], quantity)
    return {
        name: Estimate.from_ratio(policy_values, values(divisors, name, quantity))
        for name in names_in(divisors)
    }


def names_in(results: pl.DataFrame) -> Sequence[str]:
    """Return the policies of a frame, in its order."""
    return list(results["policy"].unique(maintain_order=True))


def values(results: pl.DataFrame, policy: str, quantity: str) -> Floats:
    """Return a quantity of a policy, (seeds,), in the order of the seeds."""
    return results.filter(policy=policy).sort("seed")[quantity].to_numpy()
