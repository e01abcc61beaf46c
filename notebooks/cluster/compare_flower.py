"""FedAvg, FedProx, FedNova and allocation, in Flower's strategies on a simulated clock: `python
compare_flower.py`.

Ten clients with different data and speeds train softmax regression on digits. The clients'
functions run in this process, one after the other, and a round lasts as long as its slowest client
says: no wall clock is read. It prints a table, and leaves a picture in --out.
"""

from __future__ import annotations

import argparse
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from federated import (
    ClientShares,
    accuracy,
    digits,
    fedavg,
    loss_and_gradient,
    minimum,
)
from flwr.app import ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, FedProx, Strategy
from flwr.supercore.task_identity import TaskIdentity
from scipy.stats import t as student
from with_flower import AllocatedFedNova, FedNova, client_app, first_model, times_in

from ata_gym.bench.report import style
from ata_gym.typing import Floats

CLIENTS = 10
BUDGET = 100
"""Batches of a round, over all clients; an epoch has 90."""
SECONDS = 0.01
"""The median time of a batch on the fastest clients."""
TARGET = 0.9
"""The test accuracy whose time is reported."""
RATES = (0.05, 0.1, 0.2, 0.5)
"""The step sizes from which each method has its best."""
MUS = (0.001, 0.01, 0.1, 1.0)
"""The grid of FedProx's paper."""
DEADLINES = (0.1, 0.2, 0.4)
"""Seconds of a round of a fixed time."""
SMALL_RATE = 0.05
"""The step size at which biases are compared."""
TUNED_ON = 1000
"""The first of the seeds on which constants are chosen: others than those that are reported."""

TRAIN, TEST = digits()
MINIMUM, LEAST = minimum(TRAIN)


class SimulatedClients(Grid):
    """Clients whose functions run here; the clock counts the times that they send."""

    run = None  # type: ignore[assignment]

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        """Seconds since the start."""
        # messages can be made only in a run; Flower's own simulation says so in the same way
        TaskIdentity.task_id = 1
        TaskIdentity.run_id = 1
        TaskIdentity.node_id = CLIENTS
        self._contexts = [
            Context(
                run_id=0,
                node_id=place,
                node_config={"partition-id": place, "num-partitions": CLIENTS},
                state=RecordDict(),
                run_config={"seed": seed, "seconds": SECONDS, "real-clock": False},
            )
            for place in range(CLIENTS)
        ]

    def get_node_ids(self) -> Iterable[int]:
        return range(CLIENTS)

    def send_and_receive(
        self, messages: Iterable[Message], *, timeout: float | None = None
    ) -> Iterable[Message]:
        # Flower sends in a random order, and sums of floats depend on theirs
        in_order = sorted(messages, key=lambda message: message.metadata.dst_node_id)
        replies = [
            client_app(message, self._contexts[message.metadata.dst_node_id])
            for message in in_order
        ]
        if replies:
            self.now += max(spent(reply) for reply in replies)
        return replies

    def set_run(self, run: Any) -> None:
        raise NotImplementedError("there is one run here")

    def create_message(self, *arguments: Any, **options: Any) -> Message:
        raise NotImplementedError("make a Message")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise NotImplementedError("here messages are answered at once: use send_and_receive")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise NotImplementedError("here messages are answered at once: use send_and_receive")


def spent(reply: Message) -> float:
    """Return the seconds that a client spent in a round."""
    times = times_in(reply.content["times"])
    return times.latency + sum(times.seconds) + times.unfinished


class Method(NamedTuple):
    """A way to train, with constants that are chosen from a grid."""

    make: Callable[..., Strategy]
    """The strategy."""
    config: Mapping[str, float]
    """What clients are asked for."""
    grid: Mapping[str, Sequence[float]]
    """Constants beside the step size, by name, each with its values."""


class AllocatedFedAvg(AllocatedFedNova):
    """Allocation with FedAvg's mean, to see what FedNova's is for."""

    average = staticmethod(fedavg)


def allocated(
    kind: type[AllocatedFedNova], policy: str, least: int, budget: int = BUDGET, **options: Any
) -> Strategy:
    """Return a strategy with a policy of its own."""
    return kind(ClientShares(budget, policy, least=least), **options)


EVEN = {"batches": BUDGET // CLIENTS}
METHODS = {
    "FedAvg, an epoch each": Method(FedAvg, {}, {}),
    "FedAvg, equal batches": Method(FedAvg, EVEN, {}),
    "FedProx, an epoch each": Method(FedProx, {}, {"proximal_mu": MUS}),
    "FedNova, an epoch each": Method(FedNova, {}, {}),
    "FedNova, until a deadline": Method(FedNova, {"batches": 10**6}, {"deadline": DEADLINES}),
    "default, FedAvg's weights": Method(partial(allocated, AllocatedFedAvg, "default", 1), {}, {}),
    "default": Method(partial(allocated, AllocatedFedNova, "default", 0), {}, {}),
    "default, at least 1": Method(partial(allocated, AllocatedFedNova, "default", 1), {}, {}),
    "default, 35 batches": Method(partial(allocated, AllocatedFedNova, "default", 0, 35), {}, {}),
    "lb-bsp-federated": Method(partial(allocated, AllocatedFedNova, "lb-bsp-federated", 0), {}, {}),
}

DRAWN = (
    "FedAvg, equal batches",
    "FedProx, an epoch each",
    "FedNova, an epoch each",
    "FedNova, until a deadline",
    "default, at least 1",
    "lb-bsp-federated",
)
"""The methods of the picture."""


class Curve(NamedTuple):
    """A training."""

    seconds: Floats
    """(R + 1,) the time at which each round ended, 0 first."""
    models: Floats
    """(R + 1, 65, 10) the model at that time."""

    def accuracy(self, moments: Floats) -> Floats:
        """Return the accuracy of the newest model at some times."""
        right = np.array([accuracy(model, TEST) for model in self.models])
        return right[np.searchsorted(self.seconds, moments, side="right") - 1]

    def time_to(self, target: float) -> float:
        """Return when an accuracy was first there; the end of the training if never."""
        for seconds, model in zip(self.seconds, self.models, strict=True):
            if accuracy(model, TEST) >= target:
                return float(seconds)
        return float(self.seconds[-1])


class TimeIsUpError(Exception):
    """A training has lasted long enough; Flower's strategies end only after a number of rounds."""


def play(
    method: Method,
    constants: Mapping[str, float],
    seed: int,
    *,
    start: Floats,
    rounds: int = 10_000,
    until: float = np.inf,
) -> Curve:
    """Train for some rounds, or seconds, from a model on, with the method's constants by name."""
    clients = SimulatedClients(seed)
    seconds = list[float]()
    models = list[Floats]()

    def record(server_round: int, arrays: ArrayRecord) -> None:
        seconds.append(clients.now)
        models.extend(arrays.to_numpy_ndarrays())
        if clients.now > until:
            raise TimeIsUpError

    of_strategy = {name: value for name, value in constants.items() if name == "proximal_mu"}
    of_clients = {name: value for name, value in constants.items() if name != "proximal_mu"}
    with suppress(TimeIsUpError):
        method.make(fraction_evaluate=0.0, **of_strategy).start(
            clients,
            ArrayRecord.from_numpy_ndarrays([start]),
            num_rounds=rounds,
            train_config=ConfigRecord({**method.config, **of_clients}),
            evaluate_fn=record,
        )
    return Curve(np.array(seconds), np.array(models))


def tuned(method: Method) -> dict[str, float]:
    """Return the constants with the highest mean accuracy over the time that is shown."""
    names = ["rate", *method.grid]
    moments = np.linspace(0.0, arguments.until, 200)

    def score(constants: Mapping[str, float]) -> float:
        curves = [
            play(method, constants, seed, start=first_model(), until=arguments.until)
            for seed in range(TUNED_ON, TUNED_ON + arguments.tuning_seeds)
        ]
        return float(np.mean([curve.accuracy(moments) for curve in curves]))

    grid = [
        dict(zip(names, values, strict=True)) for values in product(RATES, *method.grid.values())
    ]
    return max(grid, key=score)


def bias(method: Method, constants: Mapping[str, float], seed: int) -> float:
    """Return by how much a training leaves the minimum at which it begins.

    It is the loss of the mean model of the last half of its rounds, above the minimum: the mean has
    little of the noise of the batches. The step size is a small one, the same for all methods.
    """
    slow = {**constants, "rate": SMALL_RATE}
    models = play(method, slow, seed, start=MINIMUM, rounds=arguments.bias_rounds).models
    loss, _ = loss_and_gradient(np.mean(models[len(models) // 2 :], axis=0), TRAIN)
    return loss - LEAST


def interval(values: Sequence[float], digits: int) -> str:
    """Return the mean and the half width of its 95 % interval."""
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{np.mean(values):.{digits}f} ± {half:.{digits}f}"


def measured(name: str, method: Method) -> Floats:
    """Print a row of the table, and return the accuracy at some moments, (seeds, moments)."""
    constants = tuned(method)
    moments = np.linspace(0.0, arguments.until, 200)
    seeds = range(arguments.seeds)
    curves = [
        play(method, constants, seed, start=first_model(), until=arguments.until) for seed in seeds
    ]
    biases = [1000 * bias(method, constants, seed) for seed in seeds]
    columns = [
        name,
        ", ".join(f"{name.replace('_', ' ')} {value:g}" for name, value in constants.items()),
        interval([float(np.median(np.diff(curve.seconds))) for curve in curves], 2),
        interval([curve.time_to(TARGET) for curve in curves], 1),
        interval([100 * accuracy(curve.models[-1], TEST) for curve in curves], 1),
        interval(biases, 1),
        f"{max(biases):.1f}",
    ]
    print("| " + " | ".join(columns) + " |", flush=True)
    return np.array([curve.accuracy(moments) for curve in curves])


def draw(accuracies: Mapping[str, Floats]) -> None:
    """Draw the mean accuracy of the seeds over time, and between which it lies."""
    moments = np.linspace(0.0, arguments.until, 200)
    with style.figure(7.4, 4.2) as picture:
        axes = picture.subplots()
        for (name, right), colour in zip(accuracies.items(), style.OKABE_ITO, strict=False):
            axes.plot(moments, 100 * right.mean(axis=0), color=colour, label=name)
            axes.fill_between(
                moments,
                100 * right.min(axis=0),
                100 * right.max(axis=0),
                color=colour,
                alpha=0.12,
                linewidth=0,
            )
        axes.set(
            xlabel="simulated seconds",
            ylabel="test accuracy, %",
            ylim=(50, 100),
            xlim=(0, arguments.until),
        )
        axes.legend(loc="lower right")
        style.save(picture, arguments.out / "compared-flower", "Ten clients with digits")


parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
parser.add_argument("--seeds", type=int, default=5)
parser.add_argument("--tuning-seeds", type=int, default=3)
parser.add_argument("--until", type=float, default=15.0, help="simulated seconds")
parser.add_argument("--bias-rounds", type=int, default=200)
parser.add_argument("--methods", help="only these, separated by semicolons")
parser.add_argument("--out", type=Path, default=Path("compared"))

if __name__ == "__main__":
    arguments = parser.parse_args()
    logging.getLogger("flwr").setLevel(logging.ERROR)
    print(
        "| method | constants | s a round | s to 90 % | accuracy, % | bias, 0.001 | worst seed |\n"
        "|---|---|---|---|---|---|---|"
    )
    if arguments.methods:
        names = arguments.methods.split(";")
    else:
        names = list(METHODS)
    accuracies = {name: measured(name, METHODS[name]) for name in names}
    draw({name: right for name, right in accuracies.items() if name in DRAWN or len(names) < 6})
