"""What each host of four_hosts.py runs: a rank of torchrun that trains by each policy, or the
driver of a race on Ray.

    torchrun ... on_hosts.py rank FOLDER      # FOLDER has the plan.json of four_hosts.py
    python on_hosts.py race FOLDER
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch.utils.data import DataLoader

from ata_gym.cluster import RayRunner, TaskSampler, TorchAllocator
from ata_gym.cluster.on_ray.connection import join_ray
from ata_gym.training import make_problem

sys.path.insert(0, str(Path(__file__).parent))
import hosts

Floats = NDArray[np.float64]

EVEN = "uta"
"""The policy of even shares, from whose times the others are forecast."""
POLICIES = (EVEN, "lb-bsp-ema", "default")
RACE = "race"
PLAN = "plan.json"
"""The file of the layout, the changes and the settings of the trainings."""
RAY_PORT = 6379
WARM_UP = 1
"""The first steps of a run, in which libraries are loaded: they are not counted."""


@dataclass(frozen=True)
class Run:
    """A training."""

    policy: str
    seed: int
    seconds: Floats
    """(steps,) the time of each step."""
    busy: Floats
    """(steps, hosts) the time of each host's share."""
    latency: Floats
    """(steps, hosts) the part of it outside the tasks."""
    tasks: NDArray[np.int64]
    """(steps, hosts) the tasks of each share."""

    @property
    def longest(self) -> Floats:
        """(steps,) the time of the longest share."""
        return self.busy.max(axis=1)

    def write(self, folder: Path) -> None:
        """Write it as a file of its own."""
        data = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain = {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in data.items()
        }
        path = folder / f"{self.policy}-{self.seed}.json"
        path.write_text(json.dumps(plain), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Run:
        """Read the file of a run."""
        data = json.loads(path.read_text(encoding="utf-8"))
        arrays = {name: np.array(value) for name, value in data.items() if name not in _NAMES}
        return cls(data["policy"], data["seed"], **arrays)


_NAMES = ("policy", "seed")


@dataclass(frozen=True)
class Changes:
    """What happens to the hosts in the steps of a run."""

    throttled: str
    processors: float
    slowed: str
    link: float
    step: int
    """The step from which on a host and a link are slower."""

    def before(self, step: int, layout: hosts.Layout) -> None:
        """Give the hosts the speeds of a step, counted from 1; the first one has no quotas."""
        if step == 1:
            layout.processors({host.name: None for host in layout.hosts})
            layout.links({host.name: host.link for host in layout.hosts})
        if step == 1 + WARM_UP:
            layout.processors({host.name: host.processors for host in layout.hosts})
        if step == self.step:
            layout.processors({self.throttled: self.processors})
            layout.links({self.slowed: self.link})


def train_on_rank(given: argparse.Namespace, layout: hosts.Layout, changes: Changes) -> None:
    """Train by each policy with each seed, as one rank of torchrun; rank 0 writes the runs."""

    dist.init_process_group("gloo")
    for seed in range(given.seeds):
        for place in range(len(POLICIES)):
            # another order for each seed, so that no policy always comes first
            policy = POLICIES[(place + seed) % len(POLICIES)]
            run = _train(given, layout, changes, policy, seed)
            if dist.get_rank() == 0:
                run.write(given.out)
                print(_in_words(run), flush=True)
    dist.destroy_process_group()


def _train(
    given: argparse.Namespace, layout: hosts.Layout, changes: Changes, policy: str, seed: int
) -> Run:
    """Train by a policy as one rank."""

    rank = dist.get_rank()
    names = [host.name for host in layout.hosts]
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    problem = make_problem(given.problem, given.problem_data)
    model = problem.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=problem.learning_rates["adam"])
    allocator = TorchAllocator(given.budget, policy, name=names[rank], warm_up=WARM_UP, seed=seed)
    sampler = TaskSampler(allocator, problem.size, samples=given.samples, seed=seed)
    loader = DataLoader(
        range(problem.size), batch_sampler=sampler, collate_fn=problem.training_samples
    )
    seconds = []
    records = []
    for step in range(1, given.steps + 1):
        if rank == 0:
            changes.before(step, layout)
        if step in {1, 1 + WARM_UP, changes.step}:
            dist.barrier()
        began = perf_counter()
        with allocator.round(model) as share:
            for batch in share.take(loader):
                share.backward(problem.loss(model, batch).mean())
            share.reduce()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(perf_counter() - began)
        records.append(allocator.last)
    return _run_of(policy, seed, seconds, records, names)


def race(given: argparse.Namespace, layout: hosts.Layout, changes: Changes) -> None:
    """Train by a race with each seed, as the driver of Ray."""

    address = f"{hosts.HEAD_ADDRESS}:{RAY_PORT}"
    quiet = {"logging_level": logging.ERROR, "log_to_driver": False}
    ray = join_ray(address, _node_ip_address=hosts.HEAD_ADDRESS, **quiet)
    try:
        for seed in range(given.seeds):
            run = _race(given, layout, changes, seed)
            run.write(given.out)
            print(_in_words(run), flush=True)
    finally:
        ray.shutdown()


def _race(given: argparse.Namespace, layout: hosts.Layout, changes: Changes, seed: int) -> Run:
    """Train by a race."""

    names = [host.name for host in layout.hosts]
    options = {name: {"num_cpus": 1, "resources": {resource(name): 1}} for name in names}
    torch.set_num_threads(1)
    torch.manual_seed(seed)
    problem = make_problem(given.problem, given.problem_data)
    model = problem.build()
    optimizer = torch.optim.Adam(model.parameters(), lr=problem.learning_rates["adam"])
    seconds = []
    records = []
    make = _gradients(given.problem, given.problem_data, given.samples, seed)
    changes.before(1, layout)
    with RayRunner(make, options, given.budget, mode="race", seed=seed, warm_up=WARM_UP) as runner:
        for step in range(1, given.steps + 1):
            changes.before(step, layout)
            began = perf_counter()
            weights = torch.nn.utils.parameters_to_vector(model.parameters())
            done = runner.round(weights.detach().numpy())
            gradient = torch.from_numpy(np.mean(done.values, axis=0))
            first = 0
            for parameter in model.parameters():
                part = gradient[first : first + parameter.numel()]
                parameter.grad = part.view_as(parameter)
                first += parameter.numel()
            optimizer.step()
            seconds.append(perf_counter() - began)
            records.append(done.record)
    return _run_of(RACE, seed, seconds, records, names)


def _gradients(problem_name: str, data: str | None, samples: int, seed: int) -> Any:
    """What makes the task function of an actor: the gradient of some samples, as a vector."""

    def make_task(_worker: str) -> Any:
        torch.set_num_threads(1)
        problem = make_problem(problem_name, data)
        model = problem.build()
        parameters = list(model.parameters())
        order = np.random.default_rng(seed).permutation(problem.size)

        def gradient(weights: Any, index: int) -> Any:
            torch.nn.utils.vector_to_parameters(torch.from_numpy(weights.copy()), parameters)
            places = np.arange(index * samples, (index + 1) * samples) % problem.size
            batch = problem.training_samples(order[places].tolist())
            parts = torch.autograd.grad(problem.loss(model, batch).mean(), parameters)
            return torch.nn.utils.parameters_to_vector(parts).numpy()

        return gradient

    return make_task


def _run_of(
    policy: str, seed: int, seconds: Sequence[float], records: Iterable[Any], names: Sequence[str]
) -> Run:
    """The run that records of its rounds make."""
    rows = [
        (
            [record.busy.get(name, 0.0) for name in names],
            [record.latency.get(name, 0.0) for name in names],
            [record.tasks.get(name, 0) for name in names],
        )
        for record in records
    ]
    busy, latency, tasks = (np.array(column) for column in zip(*rows, strict=True))
    return Run(policy, seed, np.array(seconds), busy, latency, tasks)


def _in_words(run: Run) -> str:
    """A run in a line."""
    counted = run.seconds[WARM_UP:]
    return (
        f"seed {run.seed}, {run.policy}: {1000 * counted.mean():.0f} ms a step; tasks at the end"
        f" {run.tasks[-1].tolist()}"
    )


def resource(name: str) -> str:
    """The resource of Ray that a host alone has."""
    return name.replace(" ", "_")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("part", choices=("rank", "race"))
    parser.add_argument("folder", type=Path)
    arguments = parser.parse_args()
    plan = json.loads((arguments.folder / PLAN).read_text(encoding="utf-8"))
    settings = argparse.Namespace(out=arguments.folder, **plan["settings"])
    part = {"rank": train_on_rank, "race": race}[arguments.part]
    part(settings, hosts.Layout.of(plan["layout"]), Changes(**plan["changes"]))
