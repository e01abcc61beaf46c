"""Local steps on unequal workers: `torchrun --nproc-per-node 4 local_steps.py`.

Each replica does some steps of SGD by itself, H_i of B in a round, and then all average. With an
even split the slowest replica sets the pace of each round; here an Allocator says how many steps
each one does, where the allocator's task is one local step. The clock is emulated: a step of
replica i takes --emulate seconds, times log-normal noise, and nobody waits, so that the same
command gives the same numbers. Without --emulate steps are timed.

Replicas that do more steps pull the average more, and three ways to average say how much:

* mean: the mean of the weights. Replica i counts for H_i.
* steps: their mean weighted by H_i. Replica i counts for H_i squared, and a round goes further.
* normalised: each replica's movement is divided by its steps, and their mean multiplied by B / n
  (FedNova, Wang et al., NeurIPS 2020, https://arxiv.org/abs/2007.07481). All count alike.

Where all replicas draw from the same data, each of the three has the minimum of the mean loss.
Where data differ by replica (--skewed), only the last one and an even split do so.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.distributed as dist

from ata_gym.bench.report import style
from ata_gym.training import make_problem
from ata_policies import Allocator

WAYS = {
    "even, mean": ("uta", "mean"),
    "allocated, mean": ("default", "mean"),
    "allocated, steps": ("default", "steps"),
    "allocated, normalised": ("default", "normalised"),
}
"""For each way the policy that gives out local steps, and how replicas average."""
NOISE = 0.2
"""The standard deviation of the logarithm of an emulated step's time."""


def factors(average: str, steps: Sequence[int]) -> list[float]:
    """What the movement of each replica, of so many steps, is multiplied by before the sum."""
    replicas = len(steps)
    total = sum(steps)
    if average == "mean":
        return [1.0 / replicas] * replicas
    if average == "steps":
        return [count / total for count in steps]
    return [total / replicas**2 / count for count in steps]


class Point(NamedTuple):
    """The state of a training after a round."""

    seconds: float
    """The time of all rounds so far."""
    loss: float
    """The mean loss over the data of all replicas."""


class Replica:
    """The model of this rank, its part of the data, and the times of its steps.

    Args:
        options: The options of the command line.
        seed: Of the weights, of the samples and of the emulated times.
    """

    def __init__(self, options: argparse.Namespace, seed: int) -> None:
        self.rank = dist.get_rank()
        self.options = options
        torch.manual_seed(seed)
        self.problem = make_problem("digits")  # your model and your dataset here
        self.model = self.problem.build()
        self.weights = list(self.model.parameters())
        self.optimizer = torch.optim.SGD(self.weights, lr=options.learning_rate)
        # Each replica draws samples and times of its own.
        self.samples = np.random.default_rng([seed, self.rank, 0])
        self.noise = np.random.default_rng([seed, self.rank, 1])
        self.all = self.problem.training_samples(range(self.problem.size))
        self.own = np.arange(self.problem.size)
        if options.skewed:
            by_label = np.argsort(self.all[1].numpy(), kind="stable")
            self.own = np.array_split(by_label, dist.get_world_size())[self.rank]

    def step(self) -> float:
        """Do one local step, and return its seconds."""
        start = perf_counter()
        drawn = self.samples.choice(self.own, self.options.samples)
        self.optimizer.zero_grad()
        self.problem.loss(self.model, self.problem.training_samples(drawn)).mean().backward()
        self.optimizer.step()
        if self.options.emulate is None:
            return perf_counter() - start
        return float(self.options.emulate[self.rank] * self.noise.lognormal(0.0, NOISE))

    @torch.no_grad()
    def average(self, start: list[torch.Tensor], factor: float) -> None:
        """Move from the weights at the round's start by the sum of all weighted movements."""
        moved = torch.cat(
            [(now - then).flatten() for now, then in zip(self.weights, start, strict=True)]
        )
        moved *= factor
        dist.all_reduce(moved)
        parts = moved.split([weights.numel() for weights in self.weights])
        for weights, then, part in zip(self.weights, start, parts, strict=True):
            weights.copy_(then + part.view_as(then))

    @torch.no_grad()
    def loss(self) -> float:
        """The mean loss over the data of all replicas."""
        return float(self.problem.loss(self.model, self.all).mean())


def play(options: argparse.Namespace, way: str, seed: int) -> list[Point]:
    """Train until the time is over; on each rank the losses at the ends of the rounds."""
    policy, average = WAYS[way]
    replicas = range(dist.get_world_size())
    replica = Replica(options, seed)
    # Every rank has the same allocator, and tells it the same times. Each replica has a step or
    # more, since all of them have data that count.
    limits = dict.fromkeys(replicas, (1, options.budget))
    allocator = Allocator(replicas, options.budget, policy, seed=seed, limits=limits)
    points = [Point(0.0, replica.loss())]
    while points[-1].seconds < options.seconds:
        steps = allocator.allocate()
        start = [weights.detach().clone() for weights in replica.weights]
        own_times = [replica.step() for _ in range(steps[replica.rank])]
        times: list[Any] = [None] * len(replicas)
        dist.all_gather_object(times, own_times)
        replica.average(start, factors(average, list(steps.values()))[replica.rank])
        allocator.observe(dict(zip(replicas, times, strict=True)))
        round_time = max(map(sum, times))
        points.append(Point(points[-1].seconds + round_time, replica.loss()))
    return points


def loss_at(points: list[Point], seconds: np.ndarray) -> np.ndarray:
    """The loss at some times: that of the last round which has ended by then."""
    ends = [point.seconds for point in points]
    last = np.searchsorted(ends, seconds, side="right") - 1
    return np.array([point.loss for point in points])[last]


def in_seconds(time: float) -> str:
    """A time as text; an infinite one never comes."""
    return f"{time:.0f} s" if np.isfinite(time) else "never"


def tell(options: argparse.Namespace, played: dict[str, list[list[Point]]]) -> None:
    """Print a table, write the losses of all rounds, and draw them against time."""
    options.out.mkdir(parents=True, exist_ok=True)
    with (options.out / "losses.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["way", "seed", "round", *Point._fields])
        for way, runs in played.items():
            for seed, points in enumerate(runs):
                writer.writerows([way, seed, k, *point] for k, point in enumerate(points))
    grid = np.linspace(0.0, options.seconds, 201)
    print(f"| way | rounds | loss {options.target:g} after, worst | loss at the end, worst |")
    print("|---|---|---|---|")
    with style.figure(6.4, 3.6) as picture:
        axes = picture.subplots()
        for colour, (way, runs) in zip(style.OKABE_ITO, played.items(), strict=False):
            losses = np.array([loss_at(points, grid) for points in runs])
            reached = [
                next((p.seconds for p in points if p.loss <= options.target), np.inf)
                for points in runs
            ]
            rounds = np.mean([len(points) - 1 for points in runs])
            print(
                f"| {way} | {rounds:.0f} | {in_seconds(np.mean(reached))},"
                f" {in_seconds(max(reached))} |"
                f" {losses[:, -1].mean():.3f}, {losses[:, -1].max():.3f} |"
            )
            axes.plot(grid, losses.mean(0), color=colour, label=way)
            axes.fill_between(grid, losses.min(0), losses.max(0), color=colour, alpha=0.15)
        axes.set(xlabel="seconds", ylabel="loss, mean and range of the seeds", yscale="log")
        axes.legend()
        style.save(picture, options.out / "losses", "Local steps, then an average")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--emulate", help="seconds of a step on each replica, such as 1,1,2,4")
    parser.add_argument("--budget", type=int, default=64, help="local steps of a round, in all")
    parser.add_argument("--samples", type=int, default=16, help="samples of a step")
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--skewed", action="store_true", help="each replica has labels of its own")
    parser.add_argument("--seconds", type=float, default=1500.0, help="when a training ends")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--target", type=float, default=0.3, help="the loss to reach")
    parser.add_argument("--out", type=Path, default=Path("local-steps"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    size = dist.get_world_size()
    if options.emulate is not None:
        options.emulate = [float(each) for each in options.emulate.split(",")]
        if len(options.emulate) != size:
            parser.error(f"--emulate needs a time for each of {size} replicas")
    if options.budget < size or options.budget % size:
        parser.error(f"--budget must be a multiple of {size}, the number of replicas")
    played = {way: [play(options, way, s) for s in range(options.seeds)] for way in WAYS}
    if dist.get_rank() == 0:
        tell(options, played)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
