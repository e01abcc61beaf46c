"""NARX: a small network that predicts each worker's speed from its last speeds and its load.

It is the predictor of LB-BSP in CPU clusters (Chen et al., SoCC 2020), from cpu and memory load. A
hidden layer over lags is recalled from the paper; the logarithm, the level of each worker, all
sizes, and how it learns online are ours.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple, TypeAlias

import numpy as np

from ata_gym.simulation.keys import stream_keys, uniforms
from ata_gym.typing import Floats
from ata_gym.utils.extras import require
from ata_gym.utils.ranges import FINITE, Estimates, Fractions, Numbers, Reals, Wholes, Within
from ata_gym.utils.validation import real, whole_number
from ata_policies.lb_bsp.predictors import (
    HIGHEST,
    LOWEST,
    SIGNALS,
    Predictor,
    averaged,
    looked_back,
)

_WEIGHTS = 2
"""The stream of keys for first weights."""
_FARTHEST = 4.0
"""Standard deviations; inputs and targets farther from 0 count as this far."""
_Logarithms: TypeAlias = Annotated[Floats, Within(-720.0, 700.0, nan=True)]
_torch = partial(require, "torch", extra="train", purpose="The predictor narx")


class NarxMemory(NamedTuple):
    """What the network remembers of each row.

    Its F inputs are the lags, the latest last, and the signals.
    """

    forecast: Estimates
    """(E, n) the prediction."""
    rounds: Wholes
    """(E,) rounds played."""
    due: Wholes
    """(E,) how many rounds are played when the network is trained next."""
    samples: Wholes
    """(E, n) rounds with a result."""
    level: _Logarithms
    """(E, n) running mean of the logarithm of the speed minus what the network explains."""
    lags: Numbers
    """(E, n, d) logarithms of the last speeds; where there was no sample, of the prediction."""
    loads: Fractions
    """(E, n, q + 1, 2) signals of the coming round and of the q rounds before it."""
    inputs: Numbers
    """(E, n, F) inputs of the coming round, of which the lags are differences from the level."""
    examples: Numbers
    """(E, m, F + 1) the last inputs and targets of all workers; NaN where there were none yet."""
    scale: Annotated[Floats, Within(5e-324, FINITE)]
    """(E,) standard deviation of the targets at the last training."""
    weights: Reals
    """(E, P) weights of the network that all workers of the row share."""


@dataclass(frozen=True)
class Narx(Predictor[NarxMemory]):
    """One hidden layer of tanh over lags of the speed and over signals, trained online in torch.

    The signals are current and past ones. The predicted logarithm of the speed is the worker's
    level plus the output of a network, which the samples of all workers of a row train. The level
    is the mean of what the network leaves unexplained, so that a worker that was seen only under
    load does not count as slow. A sample's weight in it is one over the samples so far, and at
    least ``weight``. Logarithms suit rounds of single tasks: one over an exponential time has not
    even a mean.

    For ``warm_up`` rounds the level is the prediction. Then the network is trained, and again
    whenever a quarter more rounds were played, and at least every ``every`` rounds: some steps of
    L-BFGS, from the current weights, reduce the squared error over the last ``window`` samples of
    the row. Where a worker has no sample, its prediction takes the place of the lag. Predictions
    stay within [0.2, 5] times the level.

    Rows are trained one after the other, in one thread: torch's batched products round differently
    with the size of the batch, and a row must not depend on its batch.

    Args:
        lags: The rounds whose speeds are inputs.
        past: The rounds before the coming one whose signals are inputs.
        hidden: The hidden units.
        window: The last samples of a row on which the network is trained.
        every: The rounds between two trainings, at most.
        steps: The steps of L-BFGS in a training.
        decay: The cost of the weights' mean square beside the mean squared error.
        warm_up: The rounds before the first training.
        weight: The least weight of a sample in the level, above 0, and at most 1.

    Raises:
        MissingExtraError: If torch is not installed.
    """

    lags: int = 4
    past: int = 1
    hidden: int = 8
    window: int = 1024
    every: int = 100
    steps: int = 10
    decay: float = 0.3
    warm_up: int = 50
    weight: float = 0.05

    source = "Chen et al., LB-BSP, SoCC 2020"
    constants = "4 lags; 2 rounds of signals; 8 units; the last 1024 samples"
    assumes = "speeds a function of the last ones and of the signals"

    def __post_init__(self) -> None:
        for name in ("lags", "hidden", "window", "every", "steps", "warm_up"):
            whole_number(name, getattr(self, name))
        whole_number("past", self.past, least=0)
        real("decay", self.decay)
        real("weight", self.weight, up_to=1.0)
        # it raises a MissingExtraError where torch is not installed
        _torch()

    def start(self, rows: int, n: int, seed: int = 0) -> NarxMemory:
        size = self.lags + SIGNALS * (self.past + 1)
        draws = uniforms(stream_keys(seed, rows, _WEIGHTS), self.hidden * (size + 2) + 1)
        unknown = np.full((rows, n), np.nan)
        return NarxMemory(
            forecast=unknown,
            rounds=np.zeros(rows, np.int64),
            due=np.full(rows, self.warm_up),
            samples=np.zeros((rows, n), np.int64),
            level=unknown,
            lags=np.full((rows, n, self.lags), np.nan),
            loads=np.zeros((rows, n, self.past + 1, SIGNALS)),
            inputs=np.full((rows, n, size), np.nan),
            examples=np.full((rows, self.window, size + 1), np.nan),
            scale=np.ones(rows),
            weights=(2.0 * draws - 1.0) / np.sqrt(size),
        )

    def advance(self, memory: NarxMemory, speed: Floats, signal: Floats) -> NarxMemory:
        has_sample = ~np.isnan(speed)
        rounds = memory.rounds + has_sample.any(axis=1)
        samples = memory.samples + has_sample
        observed = np.log(speed)
        expected = np.log(memory.forecast)
        # an example is what the network was asked for the last round, and what it should have said
        latest = np.concatenate([memory.inputs, (observed - memory.level)[..., None]], axis=-1)
        additions = zip(memory.examples, latest, has_sample & ~np.isnan(memory.level), strict=True)
        examples = np.stack(
            [
                np.concatenate([kept, rows[valid][: self.window]])[-self.window :]
                for kept, rows, valid in additions
            ],
        )

        explained = expected - memory.level
        unexplained = np.where(np.isnan(memory.level), observed, observed - explained)
        share = np.maximum(1.0 / np.maximum(samples, 1), self.weight)
        level = averaged(memory.level, unexplained, share)
        lags, loads = looked_back(memory.lags, memory.loads, observed, expected, signal)
        # lags are differences from the level, and signals are moved from [0, 1] to [-1, 1]
        signals = 2.0 * loads.reshape(*level.shape, -1) - 1.0
        inputs = np.concatenate([lags - level[..., None], signals], axis=-1)

        scale = memory.scale.copy()
        weights = memory.weights.copy()
        trains = rounds >= memory.due
        for row in np.flatnonzero(trains):
            valid_examples = examples[row, ~np.isnan(examples[row, :, -1])]
            if len(valid_examples):
                scale[row] = np.sqrt(np.square(valid_examples[:, -1]).mean()) or 1.0
                targets = np.clip(valid_examples[:, -1] / scale[row], -_FARTHEST, _FARTHEST)
                scaled = self._scaled(valid_examples[:, :-1], scale[row])
                weights[row] = self._trained(weights[row], scaled, targets)
        due = np.where(trains, rounds + np.clip(rounds // 4, 1, self.every), memory.due)
        scaled = self._scaled(inputs, scale[:, None, None])
        output = scale[:, None] * self._network(weights, scaled, np.tanh)
        modelled = (rounds >= self.warm_up)[:, None]
        output = np.where(modelled, np.clip(output, math.log(LOWEST), math.log(HIGHEST)), 0.0)
        forecast = np.exp(level + output)
        return NarxMemory(
            forecast,
            rounds,
            due,
            samples,
            level,
            lags,
            loads,
            inputs,
            examples,
            scale,
            weights,
        )

    def _scaled(self, inputs: Floats, scale: Floats) -> Floats:
        """Return inputs whose lags are in standard deviations, cut at 4 of them."""
        lags = np.clip(inputs[..., : self.lags] / scale, -_FARTHEST, _FARTHEST)
        return np.concatenate([lags, inputs[..., self.lags :]], axis=-1)

    def _trained(self, weights: Floats, inputs: Floats, targets: Floats) -> Floats:
        """Return the weights after some steps of L-BFGS, or the same ones if they diverge."""
        torch = _torch()
        w, x, y = (torch.tensor(array) for array in (weights, inputs, targets))
        w.requires_grad_()
        optimiser = torch.optim.LBFGS([w], max_iter=self.steps, line_search_fn="strong_wolfe")

        def loss() -> Any:
            optimiser.zero_grad()
            error = self._network(w, x, torch.tanh) - y
            value = error.square().mean() + self.decay * w.square().mean()
            value.backward()
            return value

        # the number of threads would change the last bits, and more threads gain nothing here
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            optimiser.step(loss)
        finally:
            torch.set_num_threads(threads)
        trained: Floats = w.detach().numpy()
        if np.isfinite(trained).all():
            return trained
        return weights

    def _network(self, weights: Any, inputs: Any, tanh: Callable[[Any], Any]) -> Any:
        """Return the output of the network, (..., n); all are arrays of NumPy, or tensors.

        Args:
            weights: (..., P) the weights.
            inputs: (..., n, F) the inputs.
            tanh: The function of the hidden units, for these arrays.
        """
        # weights are packed: hidden weights, hidden biases, output weights, output bias
        size = inputs.shape[-1]
        hidden = self.hidden
        leading = weights.shape[:-1]
        hidden_weights = weights[..., : size * hidden].reshape(*leading, size, hidden)
        hidden_bias = weights[..., None, size * hidden : (size + 1) * hidden]
        output_weights = weights[..., -hidden - 1 : -1, None]
        output = (tanh(inputs @ hidden_weights + hidden_bias) @ output_weights)[..., 0]
        return output + weights[..., -1:]
