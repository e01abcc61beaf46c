"""One policy on one scenario, round by round, for people who watch."""

from collections import deque
from dataclasses import replace
from typing import Any

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.envs.rendering.timeline import Timeline
from ata_gym.scenarios import Scenario
from ata_gym.utils.validation import whole_number
from ata_policies.registry import default_name, load
from ata_policies.steps import play

_RECENT = 200  # rounds that are kept, of which one is typical
_PLAIN = {
    "uta": ("Share evenly", "all wait for the slowest"),
    "gta": ("Everybody works,\nthe first {budget} count", "the rest is for nothing"),
    "ata-icml": ("ATA (ICML 2025)", "learns who is fast"),
    "ata-empirical-icml": ("ATA (ICML 2025)", "learns who is fast (ATA-Empirical)"),
    default_name("ata_gym/TaskAllocation-v0"): ("ata-gym's default", "learns how fast, and how steady"),
}
"""Titles of policies, and what they do, in plain words."""


class Player:
    """A policy in its own env; players of one seed have the same task times for the same tasks of the same worker.

    The scenario's horizon does not count. ValueError if there is no such policy, or it cannot play the scenario.
    """

    def __init__(self, policy: str, scenario: Scenario, rounds: int, seed: int = 0) -> None:
        self.name, self.rounds = policy, whole_number("rounds", rounds)
        played = replace(scenario, horizon=self.rounds)
        self._env: Any = gym.make(load(policy).env_id, scenario=played, render_mode="ansi", disable_env_checker=True)
        self._policy = ata_policies.make(policy, self._env, seed=whole_number("seed", seed, 0))
        self.budget = scenario.budget
        self._steps = play(self._policy, self._env, seed)
        self.recent: deque[Timeline] = deque(maxlen=_RECENT)  # the last rounds
        self.times: list[float] = []  # the round times
        self.worker_times: list[float] = []
        self.wasted: list[float] = []  # the part of each worker time that gave no result

    def plain_words(self) -> tuple[str, str]:
        """A title for the policy, which may have two lines, and what it does; most policies have their name alone."""
        title, gloss = _PLAIN.get(self.name, (self.name, ""))
        return title.format(budget=self.budget), gloss

    def play_round(self) -> Timeline:
        """Play one round to its end, and tell what happened in it."""
        env = self._env.unwrapped
        step = next(step for step in self._steps if step.round_over)
        env.show_estimates(self._policy.estimated(step.state)[0])
        timeline: Timeline = env.timeline()
        self.recent.append(timeline)
        self.times.append(timeline.time)
        self.worker_times.append(timeline.worker_time)
        self.wasted.append(float(timeline.wasted_by.sum()))
        return timeline

    @property
    def settled(self) -> slice:
        """The rounds that averages are over: the second half of those played, when learning has mostly been done."""
        return slice(len(self.times) // 2, None)

    def averages(self) -> tuple[float, float, float]:
        """Mean round time and mean worker time of these rounds, and the share of the worker time without a result."""
        time, work, wasted = (float(np.mean(v[self.settled])) for v in (self.times, self.worker_times, self.wasted))
        return time, work, wasted / work if work > 0 else 0.0

    def typical(self) -> Timeline:
        """The one of the last rounds whose round time and worker times are closest to the averages."""
        time, work, share = self.averages()
        rounds = [(one.time / time, one.worker_time / work, one.wasted_by.sum() / work) for one in self.recent]
        return self.recent[int(np.abs(np.array(rounds) - (1.0, 1.0, share)).sum(axis=1).argmin())]
