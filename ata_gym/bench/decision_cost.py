"""The processor time of a policy's decisions: relative to ATA's, and of each decision in a scenario."""

from __future__ import annotations

from time import process_time
from typing import NamedTuple

import numpy as np

import ata_policies
from ata_gym.bench.experiment.experiment import Experiment, predict
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies import State

SETUP = "8 rows of icml2025-cifar100 (n = 51, B = 23), price 0.1"
"""What is played while costs are compared with ATA's."""

_BESIDE, _CHUNK = "ata", 20
_MOST = 4_000
"""Decisions that are timed, and at least those of three rounds."""


class _Player:
    """A policy, its envs, and the processor time of each of its predictions."""

    def __init__(self, name: str, experiment: Experiment) -> None:
        self.envs = experiment.make_envs(ata_policies.load(name).env_id)
        self.policy = ata_policies.make(name, self.envs)
        self.observation, _ = self.envs.reset(seed=0)
        self.steps_a_round = self.policy.setting.budget // self.observation["worker"].shape[1]
        self.state: State | None = None
        self.seconds: list[float] = []

    def play(self, rounds: int) -> None:
        for _ in range(rounds * self.steps_a_round):
            start = process_time()
            action, self.state = predict(self.policy, self.envs, self.observation, self.state)
            self.seconds.append(process_time() - start)
            self.observation = self.envs.step(action)[0]


def relative_cost(name: str, rounds: int = 2000) -> float:
    """The processor time of a policy's predictions over that of ATA's in as many rounds of ``SETUP`` beside it.

    These are the first rounds: what is planned once in a while counts, too.
    """
    setup = Experiment.on_scenario("icml2025-cifar100", rounds=rounds, seeds=8, price=0.1)
    for warm in (name, _BESIDE):  # compiles
        _Player(warm, setup).play(_CHUNK)
    ours, beside = _Player(name, setup), _Player(_BESIDE, setup)
    for first in range(0, rounds, _CHUNK):
        for player in (ours, beside):
            player.play(min(_CHUNK, rounds - first))
    return sum(ours.seconds) / sum(beside.seconds)


class DecisionTimes(NamedTuple):
    """Processor time of the decisions of one row, in milliseconds."""

    mean: float
    worst: float


def decision_times(name: str, scenario: Scenario, rounds: int) -> DecisionTimes:
    """How long the decisions of a policy take in the first rounds of a scenario, one row, the longest included.

    The same rounds are played twice, and of each decision the shorter time counts: what is loaded at the first call
    does not, nor does what else the process had to do. A decision of dispatch is one completion; at most 4,000
    decisions are timed, or those of three rounds.
    """
    experiment = Experiment.on_scenario(scenario, rounds=rounds, seeds=1)
    plays: list[Floats] = []
    for _ in range(2):
        player = _Player(name, experiment)
        player.play(min(rounds, max(3, _MOST // player.steps_a_round)))
        plays.append(np.array(player.seconds))
    times = 1e3 * np.minimum(*plays)
    return DecisionTimes(float(times.mean()), float(times.max()))
