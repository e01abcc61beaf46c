"""The processor time of a policy's decisions, relative to ATA's."""

from __future__ import annotations

from time import process_time

import gymnasium as gym

import ata_policies
from ata_gym.bench.experiment.experiment import predict
from ata_policies import State

SETUP = "8 rows of icml2025-cifar100 (n = 51, B = 23), price 0.1"
"""What is played while costs are measured."""

_BESIDE, _CHUNK = "ata", 20


class _Player:
    """A policy, its envs, and the processor time that its predictions took."""

    def __init__(self, name: str) -> None:
        env_id = ata_policies.load(name).env_id
        self.envs = gym.make_vec(env_id, num_envs=8, scenario="icml2025-cifar100", price=0.1)
        self.policy = ata_policies.make(name, self.envs)
        self.observation, _ = self.envs.reset(seed=0)
        self.steps_a_round = self.policy.setting.budget // self.observation["worker"].shape[1]
        self.state: State | None = None
        self.seconds = 0.0

    def play(self, rounds: int) -> None:
        for _ in range(rounds * self.steps_a_round):
            start = process_time()
            action, self.state = predict(self.policy, self.envs, self.observation, self.state)
            self.seconds += process_time() - start
            self.observation = self.envs.step(action)[0]


def relative_cost(name: str, rounds: int = 2000) -> float:
    """The processor time of a policy's predictions over that of ATA's in as many rounds of ``SETUP`` beside it.

    These are the first rounds: what is planned once in a while counts, too.
    """
    for warm in (name, _BESIDE):  # compiles
        _Player(warm).play(_CHUNK)
    ours, beside = _Player(name), _Player(_BESIDE)
    for first in range(0, rounds, _CHUNK):
        for player in (ours, beside):
            player.play(min(_CHUNK, rounds - first))
    return ours.seconds / beside.seconds
