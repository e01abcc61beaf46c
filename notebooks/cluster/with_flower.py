"""Federated learning in Flower, where each client does as many batches as its speed allows:
`python with_flower.py` in Flower's simulation, `python with_flower.py --supernodes 4` in processes
of their own: a SuperLink and its SuperNodes on loopback.

Both start one Flower app: `server_app` and `client_app` below. `AllocatedFedNova` is the strategy
to take into an app of one's own; its clients do the batches that they are asked for, and send their
times.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import numpy as np
from federated import (
    BATCH_SIZE,
    CLASSES,
    ClientShares,
    Device,
    Times,
    accuracy,
    digits,
    fednova,
    samples_of,
    train_locally,
)
from flwr.app import (
    ArrayRecord,
    ConfigRecord,
    Context,
    Message,
    MessageType,
    MetricRecord,
    RecordDict,
)
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

SETTINGS = {
    "rounds": 12,
    "budget": 48,
    "policy": "default",
    "least": 1,
    "rate": 0.2,
    "seconds": 0.05,
    "real-clock": True,
    "seed": 0,
    "patience": 60.0,
}
"""The app's settings, which `flwr run --run-config` changes; `seconds` is the time of a batch on
the fastest client, and `patience` how long a round waits."""
SLOWNESS = (1.0, 2.0, 4.0, 1.0, 1.0, 2.0, 1.0, 16.0, 1.0, 2.0)
"""How much longer than on the fastest a batch takes on each client, over and over."""
STARTING = 120.0
"""Seconds that a process has to start."""
ENDING = 30.0
"""Seconds that a process has to end by itself."""

client_app = ClientApp()
server_app = ServerApp()


class FedNova(FedAvg):
    """FedAvg with normalised averaging, so that clients may do unequal numbers of steps.

    A reply has, beside its model, the metrics ``num-examples`` and ``norm``, the number of its
    steps (``federated.step_norm``).
    """

    average = staticmethod(fednova)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        self._start = arrays
        return super().configure_train(server_round, arrays, config, grid)

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        valid, _ = self._check_and_log_replies(replies, is_train=True)
        contents = [reply.content for reply in valid]
        metrics = [next(iter(content.metric_records.values())) for content in contents]
        norms = np.array([float(each["norm"]) for each in metrics])
        if not np.any(norms > 0.0):
            return None, None
        models = [next(iter(content.array_records.values())) for content in contents]
        for reply, model in zip(valid, models, strict=True):
            if not all(np.isfinite(array.numpy()).all() for array in model.values()):
                raise ValueError(
                    f"the model of client {reply.metadata.src_node_id} has values that are not"
                    f" finite in round {server_round}: look at its data and its step size"
                )
        weights = np.array([float(each[self.weighted_by_key]) for each in metrics])
        averaged = {
            name: self.average(
                start.numpy(), np.stack([model[name].numpy() for model in models]), norms, weights
            )
            for name, start in self._start.items()
        }
        summary = self.train_metrics_aggr_fn(contents, self.weighted_by_key)
        return ArrayRecord.from_numpy_ndarrays(list(averaged.values())), summary


class AllocatedFedNova(FedNova):
    """FedNova in which a policy decides how many batches each client does in a round.

    A client finds its number as ``batches`` in the ConfigRecord that it gets, and sends a
    ConfigRecord ``times``: ``seconds``, a list with the time of each batch; ``latency``, what it
    spent before the first one; and ``unfinished``, how long a batch had run that it gave up, or 0.
    A client without batches in a round gets no message. One that has not answered when Flower stops
    waiting is in no list of Flower's, neither of results nor of failures: it is told to the policy
    as late.

    Args:
        shares: The budget and the policy.
        options: Those of ``FedAvg``, without ``fraction_train``: the policy takes clients.
    """

    def __init__(self, shares: ClientShares, **options: Any) -> None:
        if "fraction_train" in options:
            raise ValueError(
                "fraction_train draws clients at random, and here a policy takes them: leave it out"
            )
        super().__init__(**options)
        self.shares = shares

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        # a message for each client that is there, after waiting for the least number of them
        messages = list(super().configure_train(server_round, arrays, config, grid))
        batches = self.shares.begin([message.metadata.dst_node_id for message in messages])
        return [
            Message(
                content=RecordDict(
                    {
                        self.arrayrecord_key: arrays,
                        self.configrecord_key: ConfigRecord({**config, "batches": tasks}),
                    }
                ),
                message_type=MessageType.TRAIN,
                dst_node_id=client,
            )
            for client, tasks in batches.items()
            if tasks
        ]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        replies = list(replies)
        averaged = super().aggregate_train(server_round, replies)
        self.shares.end(
            {
                reply.metadata.src_node_id: times_in(reply.content["times"])
                for reply in replies
                if not reply.has_error()
            }
        )
        return averaged


def times_in(record: Mapping[str, Any]) -> Times:
    """Return the times that a client sent."""
    return Times(list(record["seconds"]), float(record["latency"]), float(record["unfinished"]))


@client_app.train()
def train(message: Message, context: Context) -> Message:
    """Do the batches that the message asks for, by default one epoch, and send model and times."""
    settings = SETTINGS | dict(context.run_config)
    config = message.content["config"]
    place = int(context.node_config["partition-id"])
    n = int(context.node_config["num-partitions"])
    seed = int(settings["seed"])
    samples = samples_of(place, n, seed)
    epoch = -(-len(samples.labels) // BATCH_SIZE)
    key = [seed, place, int(config["server-round"])]
    slowness = SLOWNESS[place % len(SLOWNESS)]
    device = Device(
        float(settings["seconds"]) * slowness,
        bool(settings["real-clock"]),
        np.random.default_rng([*key, 1]),
    )
    result = train_locally(
        message.content["arrays"].to_numpy_ndarrays()[0],
        samples,
        int(config.get("batches", epoch)),
        np.random.default_rng([*key, 0]),
        device,
        rate=float(config["rate"]),
        proximal_mu=float(config.get("proximal-mu", 0.0)),
        deadline=float(config.get("deadline", np.inf)),
    )
    metrics = MetricRecord({"num-examples": len(samples.labels), "norm": result.norm})
    content = {
        "arrays": ArrayRecord.from_numpy_ndarrays([result.weights]),
        "metrics": metrics,
        "times": ConfigRecord(result.times._asdict()),
    }
    return Message(content=RecordDict(content), reply_to=message)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    """Train, and print who had how many batches in each round."""
    settings = SETTINGS | dict(context.run_config)
    shares = ClientShares(
        int(settings["budget"]),
        str(settings["policy"]),
        least=int(settings["least"]),
        seed=int(settings["seed"]),
    )
    _, test = digits()
    began = time.perf_counter()

    def evaluate(server_round: int, arrays: ArrayRecord) -> MetricRecord:
        right = accuracy(arrays.to_numpy_ndarrays()[0], test)
        report = {
            "round": server_round,
            "batches": sorted(shares.batches.values()),
            "accuracy": round(right, 3),
            "seconds": round(time.perf_counter() - began, 1),
        }
        print(json.dumps(report), flush=True)
        return MetricRecord({"accuracy": right})

    strategy = AllocatedFedNova(
        shares, fraction_evaluate=0.0, min_available_nodes=int(settings["clients"])
    )
    strategy.start(
        grid,
        ArrayRecord.from_numpy_ndarrays([first_model()]),
        num_rounds=int(settings["rounds"]),
        timeout=float(settings["patience"]),
        train_config=ConfigRecord({"rate": float(settings["rate"])}),
        evaluate_fn=evaluate,
    )


def first_model() -> np.ndarray:
    """Return the model of the first round."""
    return np.zeros((digits()[0].inputs.shape[1], CLASSES))


def free_port() -> int:
    """Return a port of loopback on which nobody listens."""
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


@contextmanager
def running(command: list[str], log: Path, environment: dict[str, str]) -> Iterator[None]:
    """A process that is ended at the end of the block."""
    with log.open("w") as output:
        process = subprocess.Popen(
            command, stdout=output, stderr=subprocess.STDOUT, env=environment
        )
        try:
            yield
        finally:
            process.terminate()
            try:
                process.wait(ENDING)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def wait_for(port: int) -> None:
    """Wait until a SuperLink answers."""
    end = time.monotonic() + STARTING
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health", timeout=1.0):
                return
        except OSError:
            if time.monotonic() > end:
                raise
            time.sleep(0.1)


def run(folder: Path, port: int, supernodes: int, environment: dict[str, str]) -> None:
    """Start a SuperLink, SuperNodes where they are wanted, and the app; end all of them.

    Without ``--disable-runtime-dependency-installation`` Flower would make an environment for the
    app, and install what its pyproject.toml names.
    """
    link = ["flower-superlink", "--insecure", "--host", "127.0.0.1", "--port", str(port)]
    link.append("--disable-runtime-dependency-installation")
    if not supernodes:
        link.append("--simulation")
    with ExitStack() as processes:
        processes.enter_context(running(link, folder / "superlink.txt", environment))
        wait_for(port)
        for place in range(supernodes):
            node = ["flower-supernode", "--insecure", "--superlink", f"127.0.0.1:{port}"]
            node += ["--host", "127.0.0.1", "--port", str(free_port())]
            node += ["--node-config", f"partition-id={place} num-partitions={supernodes}"]
            log = folder / f"supernode-{place}.txt"
            processes.enter_context(running(node, log, environment))
        command = ["flwr", "run", str(folder / "app"), "here", "--stream"]
        subprocess.run(command, env=environment, check=True)


def write_app(folder: Path, settings: Mapping[str, Any]) -> None:
    """Write a Flower app of this file: its settings, its components, and the code."""
    folder.mkdir()
    for name in ("with_flower.py", "federated.py"):
        shutil.copy(Path(__file__).with_name(name), folder)
    lines = [f"{name} = {json.dumps(value)}" for name, value in settings.items()]
    text = f"""[project]
name = "with-flower"
version = "1.0.0"
description = "Clients do as many batches as their speed allows."
license = "MIT"
dependencies = []

[tool.flwr.app]
publisher = "example"

[tool.flwr.app.components]
serverapp = "with_flower:server_app"
clientapp = "with_flower:client_app"

[tool.flwr.app.config]
{os.linesep.join(lines)}
"""
    (folder / "pyproject.toml").write_text(text, encoding="utf-8")


def write_connection(folder: Path, port: int, virtual_clients: int) -> None:
    """Write where `flwr run` finds the SuperLink, and the clients of a simulation."""
    folder.mkdir()
    text = f"""[superlink]
default = "here"

[superlink.here]
address = "127.0.0.1:{port}"
insecure = true
"""
    if virtual_clients:
        text += f"""
[superlink.here.options]
num-supernodes = {virtual_clients}

[superlink.here.options.backend.client-resources]
num-cpus = 1
"""
    (folder / "config.toml").write_text(text, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument(
        "--supernodes", type=int, default=0, help="clients in processes of their own"
    )
    parser.add_argument("--clients", type=int, default=4, help="clients of the simulation")
    for name in ("rounds", "budget", "policy", "least", "seconds"):
        parser.add_argument(f"--{name}", type=type(SETTINGS[name]), default=SETTINGS[name])
    given = parser.parse_args()
    chosen = {name: getattr(given, name) for name in SETTINGS if hasattr(given, name)}
    clients = given.supernodes or given.clients
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        write_app(folder / "app", SETTINGS | chosen | {"clients": clients})
        port = free_port()
        write_connection(folder / "flower", port, 0 if given.supernodes else clients)
        environment = os.environ | {
            "FLWR_HOME": str(folder / "flower"),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "RAY_USAGE_STATS_ENABLED": "0",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        run(folder, port, given.supernodes, environment)


if __name__ == "__main__":
    main()
