"""The processor time of a policy's decisions."""

from itertools import islice
from time import process_time
from typing import Any, NamedTuple, cast

import numpy as np

import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.envs.spaces.dispatch import Dispatch
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario, scenario
from ata_gym.typing import Floats
from ata_policies.policy import Policy, State
from ata_policies.steps import play

FIRST_ROUNDS = 100
"""The number of the first rounds, in which a learner decides most, and in which it is timed."""

_DECISION_LIMIT = 4_000
"""The largest number of decisions that are timed, unless three rounds have more."""


class TimedPolicy:
    """A policy that plays an experiment, and the processor time of each of its decisions."""

    def __init__(self, name: str, experiment: Experiment) -> None:
        envs = experiment.make_envs(ata_policies.load(name).env_id)
        self.policy = ata_policies.make(name, envs)
        self.seconds = list[float]()
        self.privileged = self.policy.privileged
        if isinstance(envs.single_action_space, Dispatch):
            self.steps_per_round = experiment.scenario.budget
        else:
            self.steps_per_round = 1
        # this object stands in for the policy, so that ``play`` calls its ``predict``
        self.steps = play(cast("Policy", self), envs)

    def predict(self, *arguments: Any, **privileged: Any) -> tuple[Any, State]:
        """Decide as the policy does, and note how long that took."""
        start = process_time()
        decision = self.policy.predict(*arguments, **privileged)
        self.seconds.append(process_time() - start)
        return decision

    def play(self, rounds: int) -> None:
        """Play some more rounds."""
        for _ in islice(self.steps, rounds * self.steps_per_round):
            pass


def timed_scenarios() -> dict[str, Scenario]:
    """Return the scenarios in which decisions are timed, from few workers to many."""
    return {
        "n = 51, B = 23": scenario("icml2025-cifar100"),
        "the same, speeds walk": scenario("changing-walk"),
        "n = 1,000, B = 500": exponential_workers(1_000, 500),
        "n = 10,000, B = 23": exponential_workers(10_000, 23),
    }


def exponential_workers(n: int, budget: int) -> Scenario:
    """Return a scenario of workers with exponential task times whose means rise from 1 to 20."""
    return Scenario(exponential(np.linspace(1.0, 20.0, n)), budget)


class DecisionTimes(NamedTuple):
    """Processor time of the decisions of one row, in milliseconds."""

    mean: float
    worst: float


def decision_times(name: str, scenario: Scenario, rounds: int) -> DecisionTimes:
    """Return the processor time of a policy's decisions in a scenario's first rounds, for one row.

    The same rounds are played twice, and the shorter time of each decision counts. A decision of
    dispatch is one completion. At most 4,000 decisions are timed, or all of three rounds if these
    are more.
    """
    experiment = Experiment.on_scenario(scenario, rounds=rounds, seeds=1)
    plays: list[Floats] = []
    for _ in range(2):
        timed = TimedPolicy(name, experiment)
        timed.play(min(rounds, max(3, _DECISION_LIMIT // timed.steps_per_round)))
        plays.append(np.array(timed.seconds))
    times = 1e3 * np.minimum(*plays)
    return DecisionTimes(float(times.mean()), float(times.max()))
