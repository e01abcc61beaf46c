"""Policies played by hand, to hold records against."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import USUAL, play_jobs
from ata_gym.bench.runner.policy_run import Job, PolicyRun


class Round(NamedTuple):
    tasks: np.ndarray
    """That each worker started."""
    info: dict[str, Any]
    means: np.ndarray
    """Of the workers, before it."""
    distribution: np.ndarray
    """Which each worker had."""


def by_hand(policy: str, played: Experiment, seed: int) -> Iterator[Round]:
    """Each round that a policy plays on a seed of an experiment; a round of dispatch has several
    steps.
    """
    env: Any = gym.make(
        ata_policies.load(policy).env_id,
        scenario=played.scenario,
        horizon=played.rounds,
    )
    (observation, _), player, state = (
        env.reset(seed=seed),
        ata_policies.make(policy, env, seed=seed),
        None,
    )
    for _ in range(played.rounds):
        conditions = env.unwrapped.conditions()
        means = env.unwrapped.means()
        over = False
        while not over:
            action, state = player.predict(observation, state, privileged=conditions)
            tasks = action + observation.get("started", 0)
            observation, *_, info = env.step(action)
            over = info.get("round_over", True)
        yield Round(tasks, info, means, conditions.distribution)


def play_all(
    played,
    policies,
    folder,
    run_of=PolicyRun,
    effort=USUAL,
    progress=lambda _policy, _rounds: None,
):
    failures = play_jobs(
        [Job(played, one, folder, run_of) for one in policies],
        effort,
        lambda job, k: progress(job[1], k),
    )
    return {job.policy: error for job, error in failures.items()}
