"""``python -m docs.newest_training METHOD PROBLEM``: print how far a method of 2026 and rivals get.

All have the same workers, whose times are exponential with means from 1 to 16, the same samples for
the same seeds, and the same runtime. The step size of each is the best of a grid on seeds that the
table does not have; it stays as it is through a training. A step size in brackets is the least or
the greatest of its grid. What is shown is f - f* of a quadratic, or the loss on held-out samples:
its mean over the last quarter of the runtime, at times that are evenly spaced.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ata_gym.bench.report.page.sections import Chart, View
from ata_gym.bench.report.pictures import Drawing, Panel
from ata_gym.bench.report.statistics import Estimate, estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.models.determinism import deterministic
from ata_gym.pools import exponential
from ata_gym.training import MethodRun, Problem, make_problem
from ata_gym.training.problems.quadratic import HeterogeneousQuadratic, Quadratic
from ata_gym.typing import Floats

POOL = exponential(np.geomspace(1.0, 16.0, 8))
BUDGET = 8
SEEDS = 5
_FIRST_SEED = 100
"""Step sizes are chosen on the seeds from here on."""


class MuonWithAdamW(torch.optim.Optimizer):
    """Muon for weights of two and more dimensions, AdamW for the others, with one learning rate.

    A step of Muon is scaled to the size of one of AdamW's, as torch has it by ``match_rms_adamw``;
    all other constants are torch's. A part of more than two dimensions is a matrix with a row for
    each output.
    """

    def __init__(self, weights: Iterable[Tensor], lr: float) -> None:
        super().__init__(weights, {"lr": lr})
        parts = [part for group in self.param_groups for part in group["params"]]
        self._matrices = [
            (part, torch.nn.Parameter(part.data.flatten(1))) for part in parts if part.dim() > 1
        ]
        """Each such weight, and a matrix that shares its numbers."""
        matrices = [matrix for _, matrix in self._matrices]
        vectors = [part for part in parts if part.dim() <= 1]
        self._inner: list[torch.optim.Optimizer] = []
        if matrices:
            self._inner.append(torch.optim.Muon(matrices, lr, adjust_lr_fn="match_rms_adamw"))
        if vectors:
            self._inner.append(torch.optim.AdamW(vectors, lr))

    def step(self, closure: None = None) -> None:  # type: ignore[override]
        """Move all weights that have a gradient."""
        for part, matrix in self._matrices:
            matrix.grad = None if part.grad is None else part.grad.flatten(1)
        for inner in self._inner:
            inner.step()


class Rival(NamedTuple):
    """A method, its optimiser, and what it is given beside the step size."""

    method: str
    middle: float
    """The middle of the grid of step sizes."""
    arguments: dict[str, Any] = {}  # noqa: RUF012


class Case(NamedTuple):
    """What is trained, for how long, and by whom."""

    problem: Callable[[Path | None], Problem]
    rivals: dict[str, Rival]
    """The new method comes first."""
    runtime: float
    figure: str = "test_loss"
    """What ``evaluate`` calls the figure that is shown."""
    title: str = "held-out loss"
    samples: int = 1
    """The number of samples of a gradient."""
    grid: tuple[float, ...] = (0.1, 0.3, 1.0, 3.0, 10.0)
    """The step sizes, over that in the middle."""
    tuning: int = 3
    """The number of seeds on which a step size is chosen."""
    points: int = 40
    """The number of times at which the figure is measured, a multiple of 4."""

    def times(self, runtime: float) -> Floats:
        """The times at which the figure is measured, shape (points,)."""
        return np.linspace(0.0, runtime, self.points + 1)[1:]


def _named(name: str) -> Callable[[Path | None], Problem]:
    return partial(make_problem, name)


_ADAMW = {"optimizer": "adamw"}
_MUON = {"optimizer": MuonWithAdamW}


def lmo_rivals(plain: float, adaptive: float, muon: bool = True) -> dict[str, Rival]:
    """Ringmaster LMO in its norms, and Ringmaster and Rennala with other optimisers.

    Args:
        plain: The middle of the grid of SGD's step sizes, for one gradient.
        adaptive: That of AdamW and Muon.
        muon: Whether the weights have matrices; without them the spectral norm is the Euclidean.
    """
    rivals = {
        "ringmaster-lmo, spectral": Rival("ringmaster-lmo", 0.03, {"norm": "spectral"}),
        "ringmaster-lmo, Euclidean": Rival("ringmaster-lmo", 0.03, {"norm": "euclidean"}),
        "ringmaster-lmo, sign": Rival("ringmaster-lmo", adaptive, {"norm": "sign"}),
        "ringmaster, SGD": Rival("ringmaster", plain),
        "ringmaster, AdamW": Rival("ringmaster", adaptive, _ADAMW),
        "ringmaster, Muon": Rival("ringmaster", adaptive, _MUON),
        "rennala, AdamW": Rival("rennala", 3 * adaptive, _ADAMW),
        "rennala, Muon": Rival("rennala", 3 * adaptive, _MUON),
    }
    if muon:
        return rivals
    return {
        name: rival
        for name, rival in rivals.items()
        if "Muon" not in name and "spectral" not in name
    }


def mvr_rivals(rate: float) -> dict[str, Rival]:
    """Rennala MVR with two values of a, and Rennala."""
    return {
        "rennala-mvr, a=0.1": Rival("rennala-mvr", rate, {"a": 0.1}),
        "rennala-mvr, a=0.5": Rival("rennala-mvr", rate, {"a": 0.5}),
        "rennala, SGD": Rival("rennala", rate),
        "rennala, momentum": Rival("rennala", 0.3 * rate, {"optimizer": "momentum"}),
    }


_QUADRATIC: dict[str, Any] = {
    "problem": _named("quadratic"),
    "figure": "suboptimality",
    "title": "f - f*",
    "runtime": 1000.0,
}
_NOISY = _QUADRATIC | {"problem": lambda _: Quadratic(20, 0.1)}
"""The noise of a gradient is soon larger than the gradient."""
_TEXT: dict[str, Any] = {"problem": _named("text"), "runtime": 600.0, "samples": 8}
_CIFAR100: dict[str, Any] = {
    "problem": _named("cifar100"),
    "runtime": 200.0,
    "samples": 16,
    "tuning": 1,
    "points": 4,
}

CASES: dict[str, dict[str, Case]] = {
    "rescaled-asgd": {
        "quadratic": Case(
            lambda _: HeterogeneousQuadratic(10, 0.01, 0.03),
            {
                "rescaled-asgd, times known": Rival("rescaled-asgd", 0.1),
                "rescaled-asgd, learned": Rival("rescaled-asgd", 0.1, {"discount": 1.0}),
                "malenia, SGD": Rival("malenia", 0.5),
                "ringleader, SGD": Rival("ringleader", 0.1),
                "asgd, SGD": Rival("asgd", 0.1),
                "delay-adaptive-asgd, SGD": Rival("delay-adaptive-asgd", 0.1),
            },
            1000.0,
            "suboptimality",
            "f - f*",
        ),
    },
    "ringmaster-lmo": {
        "quadratic": Case(rivals=lmo_rivals(0.5, 0.03, muon=False), **_QUADRATIC),
        "text": Case(rivals=lmo_rivals(0.1, 0.003), **_TEXT),
        "cifar100": Case(rivals=lmo_rivals(0.1, 0.001), **_CIFAR100),
    },
    "rennala-mvr": {
        "quadratic": Case(rivals=mvr_rivals(0.5), **_QUADRATIC),
        "noisy-quadratic": Case(rivals=mvr_rivals(0.3), **_NOISY),
        "text": Case(rivals=mvr_rivals(0.5), **_TEXT),
    },
}


class Trained(NamedTuple):
    """A rival at the best step size of its grid."""

    rate: float
    at_end: bool
    """Whether the step size is the least or the greatest of the grid."""
    curves: Floats
    """The figure of each seed at each time, shape (seeds, points)."""

    @property
    def ends(self) -> Floats:
        """The mean figure of each seed over the last quarter, shape (seeds,)."""
        quarter = self.curves.shape[1] // 4
        return np.asarray(self.curves[:, -quarter:].mean(axis=1))

    @property
    def shown_rate(self) -> str:
        """The step size, in brackets at an end of the grid."""
        return f"({self.rate:.2g})" if self.at_end else f"{self.rate:.2g}"


def curve(
    case: Case, problem: Problem, rival: Rival, rate: float, seed: int, times: Floats
) -> Floats:
    """The figure at the first update after each of the times; infinite once training overflows."""
    run = MethodRun(
        rival.method,
        POOL,
        problem,
        budget=BUDGET,
        seed=seed,
        lr=rate,
        micro_batch=case.samples,
        **rival.arguments,
    )
    figures = np.full(len(times), np.inf)
    runtime = 0.0
    try:
        for i, time in enumerate(times):
            while runtime < time:
                runtime = next(run).runtime
            figures[i] = run.evaluate()[case.figure]
    except FloatingPointError:
        # The times from here on keep their infinity.
        pass
    return np.where(np.isfinite(figures), figures, np.inf)


def trained(case: Case, problem: Problem, rival: Rival, seeds: int, runtime: float) -> Trained:
    """Choose the step size of a rival, and train with it."""
    times = case.times(runtime)
    late = times[-(len(times) // 4) :]
    rates = rival.middle * np.array(case.grid)
    chosen_on = range(_FIRST_SEED, _FIRST_SEED + case.tuning)
    losses = [
        np.mean([curve(case, problem, rival, rate, seed, late) for seed in chosen_on])
        for rate in rates
    ]
    best = int(np.argmin(losses))
    curves = [curve(case, problem, rival, rates[best], seed, times) for seed in range(seeds)]
    return Trained(float(rates[best]), best in {0, len(rates) - 1}, np.array(curves))


def table(case: Case, results: dict[str, Trained]) -> Table:
    """The figure of each rival in the last quarter, and its ratio to that of the first."""
    first, *_ = results.values()
    rows = []
    for name, result in results.items():
        ratio = Estimate.from_ratio(result.ends, first.ends)
        overflows = np.isinf(result.ends).sum()
        if result is first:
            against = "1"
        elif np.isnan(ratio.mean):
            against = "-"
        else:
            against = f"{ratio.low:.3g} to {ratio.high:.3g}"
        if overflows:
            shown = f"overflows in {overflows} of {len(result.ends)}"
        else:
            of_end = Estimate.from_sample(result.ends)
            shown = f"{show(of_end.mean, of_end.high)} ({result.ends.max():.3g})"
        rows.append((name, result.shown_rate, shown, against))
    titles = right(["step size", case.title, "over the first"])
    return Table("", {"method": LEFT, **titles}, rows)


def drawing(case: Case, results: dict[str, Trained], runtime: float) -> Drawing:
    """The figure against the runtime, with a band of its interval; without what overflows."""
    finite = {name: result for name, result in results.items() if np.isfinite(result.curves).all()}
    series = []
    for place, result in enumerate(finite.values()):
        mean, half = estimate(result.curves)
        series.append({"p": place, "mean": mean, "half": half})
    settings = {"x": "runtime", "y": case.title, "logX": False, "logY": True}
    view = View({"x": case.times(runtime), "series": series})
    chart = Chart("", "", "", "curves", [view], settings)
    names = [f"{name}, {result.shown_rate}" for name, result in finite.items()]
    return Drawing([[Panel(chart)]], names)


def main() -> None:
    """Print a table, and draw a figure if asked to."""
    parser = argparse.ArgumentParser(
        prog="python -m docs.newest_training",
        description=__doc__.partition("\n")[0],
    )
    parser.add_argument("method", choices=CASES)
    parser.add_argument("problem", help="quadratic, noisy-quadratic, text or cifar100")
    parser.add_argument("--data", type=Path, help="the images of cifar100")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="at least 2 (5)")
    parser.add_argument("--share", type=float, default=1.0, help="of the runtime (1)")
    parser.add_argument("--figure", type=Path, help="a PNG file of the figure against runtime")
    options = parser.parse_args()
    cases = CASES[options.method]
    if options.problem not in cases:
        parser.error(f"{options.method} has {', '.join(cases)}, not {options.problem}")
    case = cases[options.problem]
    try:
        problem = case.problem(options.data)
    except (ValueError, OSError) as error:
        parser.error(str(error))
    runtime = case.runtime * options.share
    with deterministic(1):
        results = {
            name: trained(case, problem, rival, options.seeds, runtime)
            for name, rival in case.rivals.items()
        }
    print(markdown([table(case, results)]).strip())
    if options.figure is not None:
        picture = drawing(case, results, runtime)()
        picture.savefig(options.figure, dpi=110, metadata={"Software": None})


if __name__ == "__main__":
    main()
