"""Rounds of a semi-bandit by another package, in an environment that has this package alone.

51 workers, of which 23 get a task each in a round; their times are seen. Each package plays its own
Thompson sampling by its documented calls. ``python peer_rounds.py PACKAGE ROUNDS`` prints the
microseconds of processor time of a round, at the best of five turns. ``peers.py`` runs it.
"""

import importlib
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

N = 51
B = 23
REPETITIONS = 256
"""The repetitions that numpy plays at once."""

Play = Callable[[], None]


def rewards(rng: np.random.Generator, workers: Sequence[int]) -> list[float]:
    """The rewards of a round, from 0 to 1, high for short times: worker i takes 1 + i / N."""
    means = 1.0 + np.array(workers) / N
    values: list[float] = (1.0 - np.minimum(rng.exponential(means) / 8.0, 1.0)).tolist()
    return values


def smpybandits() -> Play:
    policies: Any = importlib.import_module("SMPyBandits.Policies")
    policy = policies.Thompson(N)
    policy.startGame()
    rng = np.random.default_rng(0)

    def play() -> None:
        chosen = policy.choiceMultiple(B)
        for worker, reward in zip(chosen, rewards(rng, chosen), strict=True):
            policy.getReward(worker, reward)

    return play


def mabwiser() -> Play:
    module: Any = importlib.import_module("mabwiser.mab")
    policy = module.MAB(
        arms=list(range(N)),
        learning_policy=module.LearningPolicy.ThompsonSampling(),
    )
    rng = np.random.default_rng(0)
    # Its Thompson sampling takes rewards of 0 and 1.
    policy.fit(list(range(N)), [0] * N)

    def play() -> None:
        expected = policy.predict_expectations()
        chosen = sorted(expected, key=expected.__getitem__)[-B:]
        binary = [int(reward > rng.random()) for reward in rewards(rng, chosen)]
        policy.partial_fit(chosen, binary)

    return play


def bayesianbandits() -> Play:
    module: Any = importlib.import_module("bayesianbandits")
    arms = [module.Arm(worker, learner=module.NormalInverseGammaRegressor()) for worker in range(N)]
    agent = module.Agent(arms, module.ThompsonSampling(), random_seed=0)
    rng = np.random.default_rng(0)

    def play() -> None:
        (chosen,) = agent.pull(top_k=B)
        for worker, reward in zip(chosen, rewards(rng, chosen), strict=True):
            agent.select_for_update(worker).update(np.array([reward]))

    return play


def numpy() -> Play:
    """Gamma posteriors of exponential times, for all repetitions at once."""
    rng = np.random.default_rng(0)
    means = 1.0 + np.arange(N) / N
    counts = np.ones((REPETITIONS, N))
    totals = np.ones((REPETITIONS, N))

    def play() -> None:
        sampled = totals / rng.standard_gamma(counts)
        chosen = np.argpartition(sampled, B, axis=1)[:, :B]
        seconds = rng.standard_exponential(chosen.shape) * means[chosen]
        np.put_along_axis(counts, chosen, np.take_along_axis(counts, chosen, 1) + 1.0, 1)
        np.put_along_axis(totals, chosen, np.take_along_axis(totals, chosen, 1) + seconds, 1)

    return play


PEERS: dict[str, Callable[[], Play]] = {
    "SMPyBandits": smpybandits,
    "mabwiser": mabwiser,
    "bayesianbandits": bayesianbandits,
    "numpy": numpy,
}


def microseconds(play: Play, rounds: int) -> float:
    """The processor time of a call at the best of five turns, after one to warm up."""
    turns: list[float] = []
    for _ in range(6):
        start = time.process_time()
        for _ in range(rounds):
            play()
        turns.append(time.process_time() - start)
    return 1e6 * min(turns[1:]) / rounds


if __name__ == "__main__":
    package = sys.argv[1]
    taken = microseconds(PEERS[package](), int(sys.argv[2]))
    print(taken / REPETITIONS if package == "numpy" else taken)
