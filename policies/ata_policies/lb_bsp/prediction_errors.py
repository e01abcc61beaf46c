"""The errors of predictors of speed on recorded rounds, as LB-BSP compares them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.typing import Floats
from ata_gym.utils.validation import whole_number
from ata_policies.lb_bsp.predictors import SIGNALS, LastRound, Predictor


class SpeedHistory(NamedTuple):
    """Speeds and signals of E rows of an env in K rounds."""

    speed: Floats  # (E, K, n) results per unit of time; NaN for a worker without a result
    signal: Floats  # (E, K, n, 2) cpu and memory load, shown before each round; zeros where the env shows none


class PredictionErrors(NamedTuple):
    """Errors of a predictor's one-round predictions in each of E rows, over all workers and rounds."""

    square: Floats  # (E,) root mean square of error / the worker's mean speed
    percentage: Floats  # (E,) mean absolute percentage error: 100 times the mean of |error| / speed


def record_speeds(env: gym.vector.VectorEnv[Any, Any, Any], rounds: int, seed: int = 0) -> SpeedHistory:
    """Play an even allocation in a vector env of ``ata_gym/TaskAllocation-v0``, and record speeds and signals.

    ValueError if an episode ends before ``rounds`` rounds.
    """
    whole_number("rounds", rounds)
    bare: Any = env.unwrapped
    even = np.tile(allocate(np.zeros(bare.n), bare.budget), (env.num_envs, 1))
    nothing = np.zeros((env.num_envs, bare.n, SIGNALS))
    observation, _ = env.reset(seed=seed)
    belief, speeds, signals = LastRound.empty(env.num_envs, bare.n), [], []
    for _ in range(rounds):
        signals.append(observation.get("signal", nothing))
        observation = env.step(even)[0]
        if (observation["worker"][:, 0] < 0).any():
            raise ValueError(f"an episode ended before {rounds} rounds: make the env with horizon={rounds} or more")
        belief = belief.observe(observation["worker"], observation["duration"])
        speeds.append(belief.speed())
    return SpeedHistory(np.stack(speeds, axis=1), np.stack(signals, axis=1))


def check_skip(skip: int, rounds: int) -> None:
    """ValueError unless some rounds are left where the first ``skip`` do not count."""
    if whole_number("skip", skip, least=0) >= rounds:
        raise ValueError(f"skip must leave some of the {rounds} rounds, not be {skip}")


def prediction_errors(
    history: SpeedHistory,
    predictors: Mapping[str, Predictor],
    skip: int = 100,
    seed: int = 0,
    progress: Callable[[str, int], None] = lambda *_: None,
) -> dict[str, PredictionErrors]:
    """Errors of each predictor that predicts each recorded round from those before it, by name.

    The recorded speeds hold noise, so the errors of a perfect model are above 0, too.

    - ``skip``: first rounds that do not count; ValueError if it leaves no round.
    - ``progress``: called after each round with the predictor's name and its number of rounds so far.

    >>> from ata_policies.lb_bsp.predictors import Ema, Last
    >>> speed = 1.0 / np.tile([1.0, 2.0], 100)[None, :, None]  # task times that alternate
    >>> history = SpeedHistory(speed, np.zeros((1, 200, 1, 2)))
    >>> errors = prediction_errors(history, {"last": Last(), "ema": Ema(0.01)})
    >>> {name: error.square.round(1) for name, error in errors.items()}
    {'last': array([0.7]), 'ema': array([0.3])}
    """
    speeds, signals = history
    rows, rounds, n = speeds.shape
    check_skip(skip, rounds)
    scale = _mean(speeds, axis=1)[:, None]
    found = {}
    for name, predictor in predictors.items():
        memory, error, last = predictor.start(rows, n, seed), np.empty_like(speeds), np.full((rows, n), np.nan)
        for k in range(rounds):
            memory = predictor.advance(memory, last, signals[:, k])
            last = speeds[:, k]
            error[:, k] = memory.forecast - last
            progress(name, k + 1)
        found[name] = PredictionErrors(
            square=np.sqrt(_mean((error / scale)[:, skip:] ** 2, axis=(1, 2))),
            percentage=100.0 * _mean(np.abs(error / speeds)[:, skip:], axis=(1, 2)),
        )
    return found


def _mean(values: Floats, axis: int | tuple[int, ...]) -> Floats:
    """The mean of what is not NaN; NaN where all is."""
    known = ~np.isnan(values)
    total, number = np.where(known, values, 0.0).sum(axis=axis), known.sum(axis=axis)
    mean: Floats = np.divide(total, number, out=np.full(total.shape, np.nan), where=number > 0)
    return mean
