"""A policy on a scenario, round by round, for people who watch."""

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

_RECENT_ROUNDS = 200
"""The number of the last rounds that are kept, of which one is shown as typical."""

_TITLES = {
    "uta": ("Share evenly", "all wait for the slowest"),
    "gta": ("Everybody works,\nthe first {budget} count", "the rest is not used"),
    "ata-icml": ("ATA (ICML 2025)", "learns who is fast"),
    "ata-empirical-icml": ("ATA (ICML 2025)", "learns who is fast (ATA-Empirical)"),
    default_name("ata_gym/TaskAllocation-v0"): (
        "ata-gym's default",
        "learns how fast, and how steady",
    ),
}
"""Titles of policies, and what they do, in plain words."""


class WatchedPolicy:
    """A policy in its own env, which plays round by round.

    Policies with the same seed have the same task times for the same tasks of the same worker. The
    horizon is ``rounds``, whatever the scenario says.

    Raises:
        ValueError: If there is no such policy, or it cannot play the scenario.
    """

    def __init__(self, policy: str, scenario: Scenario, rounds: int, seed: int = 0) -> None:
        self.name = policy
        self.rounds = whole_number("rounds", rounds)
        limited_scenario = replace(scenario, horizon=self.rounds)
        self._env: Any = gym.make(
            load(policy).env_id,
            scenario=limited_scenario,
            render_mode="ansi",
            disable_env_checker=True,
        )
        self._policy = ata_policies.make(policy, self._env, seed=whole_number("seed", seed, 0))
        self.budget = scenario.budget
        self._steps = play(self._policy, self._env, seed)
        self.recent: deque[Timeline] = deque(maxlen=_RECENT_ROUNDS)
        """The last rounds."""
        self.times: list[float] = []
        """The round times."""
        self.worker_times: list[float] = []
        """The worker time of each round."""
        self.wasted: list[float] = []
        """The part of each round's worker time that gave no result."""

    def title_and_gloss(self) -> tuple[str, str]:
        """Return a title for the policy, which may have two lines, and what the policy does.

        Most policies have only their name for a title, and nothing else.
        """
        title, gloss = _TITLES.get(self.name, (self.name, ""))
        return title.format(budget=self.budget), gloss

    def play_round(self) -> Timeline:
        """Play a round to its end, and return what happened in it."""
        env = self._env.unwrapped
        # a round of dispatch has many steps
        step = next(step for step in self._steps if step.round_over)
        env.show_estimates(self._policy.estimated(step.state)[0])
        timeline: Timeline = env.timeline()
        self.recent.append(timeline)
        self.times.append(timeline.time)
        self.worker_times.append(timeline.worker_time)
        self.wasted.append(float(timeline.wasted_time.sum()))
        return timeline

    @property
    def settled(self) -> slice:
        """The rounds over which averages are taken: the second half of all that were played.

        By then policies have mostly learned.
        """
        return slice(len(self.times) // 2, None)

    def averages(self) -> tuple[float, float, float]:
        """Return the mean round time, the mean worker time, and its share without a result.

        They are means over the rounds ``settled``.
        """
        time = float(np.mean(self.times[self.settled]))
        work = float(np.mean(self.worker_times[self.settled]))
        wasted = float(np.mean(self.wasted[self.settled]))
        if work > 0:
            return time, work, wasted / work
        return time, work, 0.0

    def typical(self) -> Timeline:
        """Return the one of the last rounds that is closest to the averages.

        Round time, worker time and wasted time count, each relative to its average.
        """
        time, work, share = self.averages()
        relative = [
            (timeline.time / time, timeline.worker_time / work, timeline.wasted_time.sum() / work)
            for timeline in self.recent
        ]
        distance = np.abs(np.array(relative) - (1.0, 1.0, share)).sum(axis=1)
        return self.recent[int(distance.argmin())]
