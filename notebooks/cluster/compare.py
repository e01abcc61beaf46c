"""Compare policies on emulated workers: `torchrun --nproc-per-node 4 compare.py --emulate
0.01,0.01,0.02,0.04`.

Each policy trains the same network on the same samples; a task that is computed before its emulated
time has passed waits for the rest. Rank 0 prints how long steps take once a policy has settled, and
leaves a picture in --out.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import perf_counter, sleep

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from ata_gym.bench.report import style
from ata_gym.cluster import TaskSampler, TorchAllocator
from ata_gym.theory.allocation.proxy_loss import allocate
from ata_gym.training import make_problem

parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
parser.add_argument(
    "--emulate",
    default="0.01,0.01,0.02,0.04",
    help="seconds of a task on each worker",
)
parser.add_argument("--policies", default="uta,lb-bsp-ema,ata-empirical-icml:eta=0.2,default")
parser.add_argument("--budget", type=int, default=64, help="tasks of a step, of one sample each")
parser.add_argument("--steps", type=int, default=200)
parser.add_argument("--problem", default="digits", help="digits or cifar100")
parser.add_argument("--problem-data", type=Path)
parser.add_argument(
    "--change-at",
    type=int,
    help="the step from which on the workers have each other's speeds, reversed",
)
parser.add_argument("--stall", help="STEP,WORKER,SECONDS: a worker hangs once")
parser.add_argument("--away", help="FIRST,LAST,WORKER: a worker is away in these steps")
parser.add_argument("--out", type=Path, default=Path("compared"))
arguments = parser.parse_args()

dist.init_process_group("gloo")
rank = dist.get_rank()
size = dist.get_world_size()
times = np.array([float(each) for each in arguments.emulate.split(",")])
if len(times) != size:
    parser.error(f"--emulate needs a time for each of {size} processes, and has {len(times)}")
if arguments.budget < size or arguments.steps < 10:
    parser.error(f"--budget must be at least {size}, and --steps at least 10")
torch.set_num_threads(1)
if arguments.stall:
    stall = tuple(float(each) for each in arguments.stall.split(","))
else:
    stall = (0, 0, 0.0)
if arguments.away:
    away = tuple(int(each) for each in arguments.away.split(","))
else:
    away = (0, -1, 0)
problem = make_problem(arguments.problem, arguments.problem_data)


def task_times(step: int) -> np.ndarray:
    """Seconds of a task on each worker in a step; infinite for who is away."""
    if arguments.change_at and step >= arguments.change_at:
        now = times[::-1].copy()
    else:
        now = times.copy()
    if away[0] <= step <= away[1]:
        now[away[2]] = np.inf
    return now


def play(policy: str) -> tuple[np.ndarray, np.ndarray, list[float]]:
    """Train; seconds of each step, tasks of each worker, and losses.

    In double precision, where rounding is small.
    """
    torch.manual_seed(0)
    model = problem.build().double()
    model.register_forward_pre_hook(lambda _, inputs: (inputs[0].double(),))
    optimizer = torch.optim.Adam(model.parameters(), lr=problem.learning_rates["adam"])
    allocator = TorchAllocator(arguments.budget, policy, name=f"worker {rank}")
    sampler = TaskSampler(allocator, problem.size)
    samples = range(problem.size)
    loader = DataLoader(samples, batch_sampler=sampler, collate_fn=problem.training_samples)
    seconds = []
    tasks = []
    losses = []
    last = perf_counter()
    for step in range(1, arguments.steps + 1):
        (
            allocator.leave()
            if away[0] <= step + 1 <= away[1] and away[2] == rank
            else allocator.join()
        )
        pause = float(task_times(step)[rank])
        if (step, rank) == stall[:2]:
            hang = stall[2]
        else:
            hang = 0.0
        with allocator.round(model) as share:
            for batch in share.take(loader):
                began = perf_counter()
                share.backward(problem.loss(model, batch).mean())
                sleep(max(0.0, began + pause + hang - perf_counter()))
                hang = 0.0
            share.reduce()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(perf_counter() - last)
        tasks.append([allocator.last.tasks[f"worker {each}"] for each in range(size)])
        losses.append(allocator.last.loss)
        last = perf_counter()
    return np.array(seconds), np.array(tasks), losses


def draw(found: dict[str, tuple[np.ndarray, np.ndarray, list[float]]], best: list[float]) -> None:
    """Who computes how many tasks, and how long steps take."""
    steps = np.arange(1, arguments.steps + 1)
    with style.figure(1.4 + 2.6 * len(found), 4.6) as picture:
        grid = picture.subplots(2, len(found), sharex=True, sharey="row", squeeze=False)
        for (policy, (seconds, tasks, _)), (above, below) in zip(
            found.items(),
            grid.T,
            strict=True,
        ):
            labels = [f"worker {place}: {1000 * time:.3g} ms" for place, time in enumerate(times)]
            above.stackplot(
                steps,
                tasks.T,
                labels=labels,
                colors=style.OKABE_ITO,
                step="mid",
                linewidth=0,
            )
            above.set(title=policy, xlim=(1, arguments.steps), ylim=(0, arguments.budget))
            below.plot(steps, seconds, color="#333333", linewidth=0.9, label="a step")
            below.plot(
                steps,
                best,
                color="#D55E00",
                linewidth=1.2,
                linestyle=(0, (4, 2)),
                label="best split",
            )
            below.set(
                xlabel="step",
                ylim=(0, 1.25 * max(np.quantile(one[0], 0.95) for one in found.values())),
            )
        grid[0, 0].set_ylabel("tasks of each worker")
        grid[1, 0].set_ylabel("seconds")
        for axes in grid[:, -1]:
            axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        style.save(
            picture,
            arguments.out / "compared",
            f"{arguments.problem}, B = {arguments.budget}",
        )


events = [each for each in (arguments.change_at, stall[0], away[0]) if each]
end = int(min([arguments.steps + 1, *events])) - 1
settled = slice(min(100, end // 2), end)
best = []
for step in range(1, arguments.steps + 1):
    now = task_times(step)
    split = allocate(now[np.isfinite(now)], arguments.budget)
    best.append(float((split * now[np.isfinite(now)]).max()))
found = {policy: play(policy) for policy in arguments.policies.split(",")}
if rank == 0:
    usual = {policy: float(np.median(seconds[settled])) for policy, (seconds, *_) in found.items()}
    first, *_ = usual.values()
    _, _, alone = next(iter(found.values()))
    for policy, time in usual.items():
        differ = max(abs(a / b - 1.0) for a, b in zip(found[policy][2], alone, strict=True))
        print(
            f"{policy}: {1000 * time:.0f} ms a step, {first / time:.2f} times as fast as"
            f" {next(iter(usual))}, {time / best[0]:.2f} times the best split; losses differ by"
            f" {differ:.0e}",
            flush=True,
        )
    draw(found, best)
dist.destroy_process_group()
