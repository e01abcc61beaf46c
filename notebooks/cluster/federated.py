"""Federated learning without a framework: unequal numbers of local batches, and what is made of
them.

The clients hold the digits of scikit-learn, each an uneven part of the classes, and train softmax
regression, a convex problem, so that its minimum is known. with_flower.py runs this in Flower.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from functools import cache
from time import perf_counter, sleep
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize
from sklearn.datasets import load_digits

from ata_gym.typing import Floats, Ints
from ata_policies import Allocator

BATCH_SIZE = 16
"""Samples of a batch."""
DECAY = 3e-2
"""The weight of half the squared norm of the model in its loss."""
CLASSES = 10
FEWEST = BATCH_SIZE
"""The least number of samples of a client."""
NOISE = 0.2
"""The standard deviation of the logarithm of a batch's time."""
LATENCY = 0.05
"""Seconds that a client spends in a round before its first batch."""


class Samples(NamedTuple):
    """Inputs and their classes."""

    inputs: Floats
    """(m, 65) pixels in [0, 1], and a 1 for the bias."""
    labels: Ints
    """(m,) classes."""


@cache
def digits() -> tuple[Samples, Samples]:
    """Return the samples for training, and every fifth for testing."""
    pixels, labels = load_digits(return_X_y=True)
    inputs = np.column_stack([pixels / 16.0, np.ones(len(pixels))])
    held_out = np.arange(len(labels)) % 5 == 4
    return Samples(inputs[~held_out], labels[~held_out]), Samples(
        inputs[held_out], labels[held_out]
    )


@cache
def samples_of(client: int, n: int, seed: int) -> Samples:
    """Return the training samples that one of n clients has."""
    return shared_out(digits()[0], n, seed)[client]


def shared_out(samples: Samples, n: int, seed: int, concentration: float = 0.3) -> list[Samples]:
    """Return the samples of each of n clients: of each class a client has a random part.

    The parts of a class are drawn from a Dirichlet distribution, as in FedNova's experiments (Wang
    et al., 2020), until each client has some samples.
    """
    rng = np.random.default_rng([seed, n])
    while True:
        owner = np.empty(len(samples.labels), np.int64)
        for label in range(CLASSES):
            places = rng.permutation(np.flatnonzero(samples.labels == label))
            parts = rng.dirichlet(np.full(n, concentration))
            ends = np.round(np.cumsum(parts)[:-1] * len(places)).astype(np.int64)
            for client, part in enumerate(np.split(places, ends)):
                owner[part] = client
        if np.bincount(owner, minlength=n).min() >= FEWEST:
            return [
                Samples(samples.inputs[owner == client], samples.labels[owner == client])
                for client in range(n)
            ]


def loss_and_gradient(weights: Floats, samples: Samples) -> tuple[float, Floats]:
    """Return the mean cross-entropy with its weight decay, and its gradient, (65, 10)."""
    scores = samples.inputs @ weights
    scores -= scores.max(axis=1, keepdims=True)
    rows = np.arange(len(scores))
    total = np.exp(scores).sum(axis=1, keepdims=True)
    loss = np.mean(np.log(total[:, 0]) - scores[rows, samples.labels])
    errors = np.exp(scores) / total
    errors[rows, samples.labels] -= 1.0
    gradient = samples.inputs.T @ errors / len(scores) + DECAY * weights
    return float(loss + 0.5 * DECAY * np.sum(weights**2)), gradient


def accuracy(weights: Floats, samples: Samples) -> float:
    """Return the share of samples whose class is right."""
    return float(np.mean(np.argmax(samples.inputs @ weights, axis=1) == samples.labels))


def minimum(samples: Samples) -> tuple[Floats, float]:
    """Return the model of the least loss, (65, 10), and this loss."""

    def flat(weights: Floats) -> tuple[float, Floats]:
        loss, gradient = loss_and_gradient(weights.reshape(-1, CLASSES), samples)
        return loss, gradient.ravel()

    start = np.zeros(samples.inputs.shape[1] * CLASSES)
    options = {"maxiter": 10_000, "maxfun": 20_000, "ftol": 0.0, "gtol": 1e-9}
    best = minimize(flat, start, jac=True, method="L-BFGS-B", options=options)
    return best.x.reshape(-1, CLASSES), float(best.fun)


class Times(NamedTuple):
    """What a client spent in a round, in seconds, by its own clock."""

    seconds: list[float]
    """The time of each batch that it did."""
    latency: float
    """What it spent before its first batch."""
    unfinished: float
    """How long the batch had run in which its time was up; 0 where there was none."""


class LocalResult(NamedTuple):
    """What a client sends back."""

    weights: Floats
    norm: float
    """By how much its steps weigh, counted in plain steps: |a_i| in FedNova."""
    times: Times


class Device(NamedTuple):
    """A client's emulated speed: a batch takes ``seconds``, times noise."""

    seconds: float
    """The median time of a batch."""
    real: bool
    """Whether it really waits, and measures; or only says what it would have measured."""
    rng: np.random.Generator
    """Keyed by client and round, so that all methods meet the same times."""

    def spend(self, seconds: float, began: float) -> float:
        """Wait until a time has passed since ``began``, and return what has passed."""
        if not self.real:
            return seconds
        sleep(max(0.0, began + seconds - perf_counter()))
        return perf_counter() - began


def train_locally(
    weights: Floats,
    samples: Samples,
    batches: int,
    rng: np.random.Generator,
    device: Device,
    *,
    rate: float,
    proximal_mu: float = 0.0,
    deadline: float = np.inf,
) -> LocalResult:
    """Do some steps of gradient descent on batches in a random order.

    Args:
        weights: (65, 10) the model of the round.
        samples: The client's data.
        batches: The most steps; with a deadline they may be fewer.
        rng: Gives the order of the samples.
        device: How long a batch takes.
        rate: The step size.
        proximal_mu: FedProx: the weight of half the squared distance from the model of the round.
        deadline: The seconds after which the client stops, with what it has.
    """
    latency = device.spend(LATENCY, perf_counter())
    local = weights.copy()
    seconds = list[float]()
    unfinished = 0.0
    order = np.empty(0, np.int64)
    while len(seconds) < batches:
        began = perf_counter()
        left = deadline - latency - sum(seconds)
        planned = device.seconds * device.rng.lognormal(0.0, NOISE)
        if planned > left:
            unfinished = device.spend(max(left, 0.0), began)
            break
        if len(order) < BATCH_SIZE:
            order = np.concatenate([order, rng.permutation(len(samples.labels))])
        batch = Samples(samples.inputs[order[:BATCH_SIZE]], samples.labels[order[:BATCH_SIZE]])
        order = order[BATCH_SIZE:]
        _, gradient = loss_and_gradient(local, batch)
        local -= rate * (gradient + proximal_mu * (local - weights))
        seconds.append(device.spend(planned, began))
    times = Times(seconds, latency, unfinished)
    return LocalResult(local, step_norm(len(seconds), rate * proximal_mu), times)


def step_norm(steps: int, shrinking: float = 0.0) -> float:
    """Return |a_i| of FedNova: the sum of the weights of a client's gradients in its update.

    It is the number of steps, or less with FedProx, whose term shrinks earlier steps by the factor
    ``1 - shrinking`` in each later one, where ``shrinking`` is the step size times mu.

    Example:
        >>> step_norm(3), step_norm(3, 0.5)
        (3.0, 1.75)
    """
    return float(np.sum((1.0 - shrinking) ** np.arange(steps)))


def fednova(start: Floats, ends: Floats, norms: Floats, weights: Floats) -> Floats:
    """Return the next model by normalised averaging (Wang et al., FedNova, NeurIPS 2020).

    With p_i = weights / sum, it is x + tau * sum_i p_i (x_i - x) / |a_i|, where tau = sum_i p_i
    |a_i|: a client counts by its data, whatever the number of its steps. To the first order in the
    step size, the fixed point is then the minimum of sum_i p_i F_i; that of ``fedavg`` is the
    minimum of sum_i p_i |a_i| F_i.

    Args:
        start: (...) the model x of the round.
        ends: (n, ...) the models x_i that clients sent.
        norms: (n,) their |a_i|, see ``step_norm``; clients with 0 are left out.
        weights: (n,) the weights of clients, such as their numbers of samples.

    Raises:
        ValueError: If no client did a step.
    """
    worked = norms > 0.0
    if not worked.any():
        raise ValueError("no client did a step: there is nothing to average")
    shares = weights[worked] / weights[worked].sum()
    steps = norms[worked]
    directions = (ends[worked] - start) / steps.reshape(-1, *[1] * start.ndim)
    return start + (shares @ steps) * np.tensordot(shares, directions, axes=1)


def fedavg(start: Floats, ends: Floats, norms: Floats, weights: Floats) -> Floats:
    """Return the weighted mean of the clients' models; see ``fednova`` for the arguments."""
    return start + np.tensordot(weights / weights.sum(), ends - start, axes=1)


class ClientShares:
    """Who does how many of the B batches of a round, learned from the clients' own times.

    Clients come and go: those that were there before go on with what is known of them.

    Args:
        budget: Batches B of a round, over all clients.
        policy: A policy of ``ata_policies`` that hands out exactly B tasks.
        least: The least batches of each client; with 1, the data of no client are left out.
        seed: The seed of the policy's own randomness.
    """

    def __init__(
        self, budget: int, policy: str = "default", *, least: int = 0, seed: int = 0
    ) -> None:
        self._make: Callable[..., Allocator] = lambda clients, prior: Allocator(
            clients,
            budget,
            policy,
            limits=dict.fromkeys(clients, (least, budget)),
            prior=prior,
            seed=seed,
        )
        self._allocator: Allocator | None = None
        self.batches: dict[int, int] = {}
        """The batches of each client in the last round that began."""

    def begin(self, clients: Collection[int]) -> dict[int, int]:
        """Return the batches of each client that is there, by its number; 0 for some.

        Raises:
            ValueError: If nobody is there, or B batches are too few for the least of each.
        """
        allocator = self._allocator
        if allocator is None:
            allocator = self._make(sorted(clients), None)
        elif not set(clients) <= set(allocator.places):
            # limits are by name: with a client that was never here, they are made anew
            everybody = [*allocator.places, *sorted(set(clients) - set(allocator.places))]
            allocator = self._make(everybody, allocator.state_dict())
        allocator.keep_only(sorted(clients))
        self._allocator = allocator
        self.batches = {int(client): tasks for client, tasks in allocator.allocate().items()}
        return self.batches

    def end(self, times: Mapping[int, Times]) -> None:
        """Learn from a round.

        Args:
            times: What each client that answered spent. A client that had batches and is missing
                here, since it was late or failed, is told to the policy as one that did not answer.
        """
        if self._allocator is None:
            raise ValueError("no round has begun: call begin() first")
        asked = {client for client, batches in self.batches.items() if batches}
        stopped = {
            client: spent.unfinished
            for client, spent in times.items()
            if len(spent.seconds) < self.batches.get(client, 0)
        }
        self._allocator.observe(
            {client: spent.seconds for client, spent in times.items()},
            cancelled=stopped,
            lost=asked - set(times),
            latency={client: spent.latency for client, spent in times.items()},
        )
