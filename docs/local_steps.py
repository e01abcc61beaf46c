"""``python -m docs.local_steps``: print how long methods with local steps take, and draw losses.

Four workers take 1, 1, 2 and 4 in the median for a step, with log-normal noise (sigma 0.2), and 10
for a message. A round is 32 steps. Shown is the time until the loss is at most a goal: f - f* of
``Quadratic(20, 0.03)``, the same where data differ by worker (spread 0.02), and the test loss of
the network for digits with 16 samples a step. Each case has the learning rate of a grid that is the
first at the goal on a seed of its own, or has the lowest loss in the end. A cell has the mean over
the seeds, its 95 % interval (Student's t), in brackets the worst seed, and the learning rate; then
the geometric mean of the ratios to equal local steps on the same seeds.

With ``--data`` it is a table of the network of CIFAR-100 alone, until a test loss of 4.2.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ata_gym.bench.report import style
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.models.determinism import deterministic
from ata_gym.pools import log_normal
from ata_gym.training import MethodRun, Problem, make_problem
from ata_gym.training.problems.quadratic import HeterogeneousQuadratic, Quadratic
from ata_gym.typing import Floats

POOL = log_normal(np.log([1.0, 1.0, 2.0, 4.0]), 0.2).with_latency([10.0] * 4)
BUDGET = 32
SEEDS = 5
RATES = (0.1, 0.2, 0.4, 0.8, 1.6)
POLICIES = {"equal": "uta", "proportional": "lb-bsp-ema", "default": "default"}
"""The policy for each way to give out steps."""
SPARSE = "loscar-sgd, K = d / 10"
EQUAL = "local-sgd, equal"
"""The row that others are compared with, on the same seeds."""

Curves = list[list[tuple[float, float]]]
"""The times and losses of a case on each seed."""


def cases() -> Mapping[str, tuple[str, dict[str, Any]]]:
    """The rows of the table: a method and its hyperparameters."""
    rows: dict[str, tuple[str, dict[str, Any]]] = {"rennala": ("rennala", {})}
    for way, policy in POLICIES.items():
        rows[f"local-sgd, {way}"] = "local-sgd", {"policy": policy}
    outer = {"outer_lr": 0.7, "outer_momentum": 0.9}
    rows["local-sgd, default, normalised"] = "local-sgd", {"average": "normalised"}
    rows["local-sgd, default, outer step"] = "local-sgd", outer
    for way in ("equal", "default"):
        rows[f"loscar-sgd, K = d, {way}"] = (
            "loscar-sgd",
            {"policy": POLICIES[way], "density": 1.0},
        )
    for way, policy in POLICIES.items():
        rows[f"{SPARSE}, {way}"] = "loscar-sgd", {"policy": policy}
    for name, density in (("loscar-sgd, K = d", 1.0), (SPARSE, 0.1)):
        rows[f"{name}, default, overwritten"] = (
            "loscar-sgd",
            {"density": density, "corrected": False},
        )
    return rows


class World(NamedTuple):
    """What is trained, until when."""

    problem: Problem
    figure: str
    """The name of the loss in the problem's evaluation."""
    goal: float
    until: float
    """The time at which a training ends."""
    samples: int = 1
    """The samples of a step."""
    drawn: float = 0.0
    """The time until which losses are drawn; 0 if they are not."""
    compared: bool = True
    """Whether the table has the ratio to equal steps."""
    every: int = 1
    """The rounds from one loss to the next."""


def worlds(data: Path | None = None) -> Mapping[str, World]:
    """The columns of the table.

    Args:
        data: The images of CIFAR-100, if the table is of these.
    """
    if data is not None:
        problem = make_problem("cifar100", data)
        return {"CIFAR-100": World(problem, "test_loss", 4.2, 2500.0, 16, every=2)}
    gap = "suboptimality"
    differing = HeterogeneousQuadratic(20, 0.03, 0.02)
    return {
        "quadratic": World(Quadratic(20, 0.03), gap, 0.01, 1200.0, drawn=400.0),
        "data differ": World(differing, gap, 0.01, 1200.0, compared=False),
        "digits": World(make_problem("digits"), "test_loss", 0.1, 1000.0, 16, drawn=1000.0),
    }


def losses(world: World, case: str, rate: float, seed: int) -> Iterator[tuple[float, float]]:
    """The time and the loss at the start and after rounds.

    They end when the time is over, or the goal is reached and nothing more is drawn.
    """
    method, arguments = cases()[case]
    settings = {"micro_batch": world.samples, "lr": rate, "seed": seed}
    run = MethodRun(method, POOL, world.problem, budget=BUDGET, **settings, **arguments)
    yield 0.0, run.evaluate()[world.figure]
    for number, record in enumerate(run, start=1):
        if record.runtime > world.until:
            return
        if number % world.every:
            continue
        loss = run.evaluate()[world.figure]
        yield record.runtime, loss
        if loss <= world.goal and record.runtime > world.drawn:
            return


def trial(world: World, case: str, rate: float, seed: int) -> tuple[float, float]:
    """When the goal is reached, or infinity, and the last loss until then."""
    loss = np.inf
    try:
        for time, loss in losses(world, case, rate, seed):
            if loss <= world.goal:
                return time, loss
    except FloatingPointError:
        return np.inf, np.inf
    return np.inf, loss


def best_rate(world: World, case: str, seed: int) -> float:
    """The learning rate of the grid that is the first at the goal."""
    best, *others = RATES
    ahead = trial(world, case, best, seed)
    for rate in others:
        # What is not at the goal by then is not ahead.
        until = min(world.until, ahead[0])
        result = trial(world._replace(until=until), case, rate, seed)
        if result < ahead:
            best, ahead = rate, result
    return best


def loss_at(curve: list[tuple[float, float]], times: Floats) -> Floats:
    """The loss at some times: that of the last round which has ended by then."""
    ends, values = np.array(curve).T
    at: Floats = values[np.searchsorted(ends, times, side="right") - 1]
    return at


def reached(world: World, curves: Curves) -> Floats:
    """The time until the goal on each seed, or infinity, shape (seeds,)."""
    first = (next((t for t, loss in curve if loss <= world.goal), np.inf) for curve in curves)
    return np.fromiter(first, np.float64)


def cell(times: Floats, rate: float) -> str:
    """The time until the goal: mean, interval, and in brackets the worst; and the rate."""
    count = int(np.isfinite(times).sum())
    if count < len(times):
        return f"in {count} of {len(times)}; {rate:g}"
    estimate = Estimate.from_sample(times)
    return f"{show(estimate.mean, estimate.high)} ({times.max():.0f}); {rate:g}"


def ratio(times: Floats, others: Floats) -> str:
    """The ratio of two times on the same seeds: its geometric mean and interval."""
    estimate = Estimate.from_ratio(times, others)
    if not np.isfinite(estimate.mean):
        return "-"
    return f"{estimate.mean:.2f} ({estimate.low:.2f} to {estimate.high:.2f})"


def draw(known: Mapping[str, World], panels: dict[str, dict[str, Curves]], path: Path) -> None:
    """Draw the losses against time: means of the seeds, and their range."""
    drawn = {name: world for name, world in known.items() if world.drawn}
    with style.figure(9.0, 3.6) as picture:
        all_axes = picture.subplots(1, len(drawn))
        for axes, (name, world) in zip(all_axes, drawn.items(), strict=True):
            times = np.linspace(0.0, world.drawn, 301)
            for method, dashes in (("local-sgd", "dashed"), (SPARSE, "solid")):
                for colour, way in zip(style.OKABE_ITO, POLICIES, strict=False):
                    label = f"{method}, {way}"
                    values = np.array([loss_at(curve, times) for curve in panels[name][label]])
                    axes.plot(times, values.mean(0), color=colour, linestyle=dashes, label=label)
                    axes.fill_between(times, values.min(0), values.max(0), color=colour, alpha=0.12)
            axes.axhline(world.goal, color="#999999", linewidth=0.8)
            figure = world.figure.replace("_", " ")
            axes.set(title=name, xlabel="time", yscale="log", ylabel=figure)
        all_axes[0].legend(fontsize=8)
        picture.savefig(path, dpi=110, metadata={"Software": None})


def main() -> None:
    """Print a table, and draw a picture."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.local_steps",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at least 2 (5)")
    parser.add_argument("--data", type=Path, help="the images of cifar100, of which the table is")
    parser.add_argument("--picture", type=Path, help="draw the losses in this PNG file")
    options = parser.parse_args()
    if options.data is not None and options.picture is not None:
        parser.error("nothing is drawn of cifar100: leave --data or --picture out")
    try:
        known = worlds(options.data)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    names = [*cases()]
    if options.data is not None:
        names = [f"{method}, {way}" for method in ("local-sgd", SPARSE) for way in POLICIES]
    panels = dict[str, dict[str, Curves]]()
    cells = dict[str, list[str]]()
    with deterministic(1):
        for name, world in known.items():
            panels[name] = {}
            for case in names:
                rate = best_rate(world, case, options.seeds)
                curves = [[*losses(world, case, rate, seed)] for seed in range(options.seeds)]
                panels[name][case] = curves
                cells.setdefault(case, []).append(cell(reached(world, curves), rate))
    compared = [name for name, world in known.items() if world.compared]
    for case, columns in cells.items():
        for name in compared:
            times, equal = (reached(known[name], panels[name][row]) for row in (case, EQUAL))
            columns.append(ratio(times, equal))
    titles = [f"{name}: {world.goal:g}" for name, world in known.items()]
    titles += [f"{name}, over equal" for name in compared]
    rows = [(case, *columns) for case, columns in cells.items()]
    print(markdown([Table("", {"time until": LEFT, **right(titles)}, rows)]).strip())
    if options.picture is not None:
        draw(known, panels, options.picture)


if __name__ == "__main__":
    main()
