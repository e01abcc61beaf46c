"""The published figures, from the same scenarios, as by the command ``reproduce``."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report.losses import CurveLike
from ata_gym.bench.runner.jobs import Effort, Runner, on_this_machine
from ata_gym.bench.runner.results import Results
from ata_gym.bench.runner.study import Study, play
from ata_gym.bench.studies.benchmark import Benchmark
from ata_gym.bench.studies.paper import cifar100, regret, unpublished
from ata_gym.bench.studies.paper.figures import (
    CIFAR100,
    FIGURES,
    MIXED,
    PRIOR,
    PUBLISHED_POLICIES,
    REGRET,
    SIZES,
)
from ata_gym.scenarios import published as published_scenarios
from ata_gym.utils.extras import require
from ata_gym.utils.validation import whole_number
from ata_policies.registry import default_name

NEWER = ("ata-empirical-icml", "ata-icml", "thompson-beta")
"""Policies that are drawn beside the published ones, as the default policy is.

They are the two with the constants of the ICML poster, and a cheap learner.
"""


def reproduce(
    figure: str,
    *,
    rounds: int | None = None,
    seeds: int | None = None,
    sizes: Sequence[int | str] | None = None,
    growth: str | None = None,
    train: bool = False,
    data: str | os.PathLike[str] | None = None,
    device: str | None = None,
    loss_curve: CurveLike | None = None,
    published: str | os.PathLike[str] | None = None,
    out: str | os.PathLike[str] | None = None,
    jobs: int | None = None,
    save_every: float = 10.0,
    rerun_changed: bool = False,
    runner: Runner = on_this_machine,
    command: Sequence[str] = (),
) -> Results:
    """Run policies on a published scenario, and compare with its figure where that is known.

    Args:
        figure: One of ``figures.FIGURES``.
        rounds: The number of rounds, by default the usual one of the figure.
        seeds: The number of episodes, by default the usual one.
        sizes: For icml2025-quadratic the numbers of workers.
        growth: For icml2025-quadratic how mean task times grow with the worker: linear (the
            default), sqrt, log or square.
        train: For icml2025-cifar100, whether the paper's network is trained.
        data: With ``train`` its images, as for ``train(..., "cifar100")``.
        device: With ``train`` where it is trained, by default on the CPU.
        loss_curve: For icml2025-cifar100 a loss by round, as for ``run``.
        published: For icml2025-cifar100 a CSV file of the published lines, with the columns axis,
            policy, time and loss_above_optimum.
        out: The folder of the results, as for ``run``.
        jobs: The number of policies that are played at once, as for ``run``.
        save_every: Seconds between checkpoints.
        rerun_changed: Whether to make anew what other code has made, which is refused otherwise.
        runner: Where policies are played, by default on this machine.
        command: The words by which the page says how to repeat this; by default this call.

    Returns:
        Results; where ratios differ from the published ones by more than is tolerated, the figure
        is among the failures.

    Raises:
        ValueError: If there is no such figure, an argument belongs to another figure or is out of
            its range, or the folder holds other results.
        MissingExtraError: If the figure needs torch, which is not installed.

    Example:
        >>> from ata_gym import bench
        >>> results = bench.reproduce("icml2025-regret", rounds=300, seeds=2, jobs=1)
        >>> results.table().columns[:5]
        ['policy', 'part', 'from', 'to', 'slope']
    """
    arguments: dict[str, Any] = {
        "train": train,
        "data": data,
        "device": device,
        "loss_curve": loss_curve,
        "published": published,
        "sizes": sizes,
        "growth": growth,
    }
    _check_arguments(figure, arguments)
    usual = FIGURES[figure]
    if rounds is None:
        rounds = usual.rounds
    if seeds is None:
        seeds = usual.seeds
    size = {
        "rounds": whole_number("rounds", rounds),
        "seeds": whole_number("seeds", seeds),
    }
    study: Study
    if figure == CIFAR100:
        study = _cifar100(size, arguments)
    elif figure in SIZES:
        study = _quadratic(figure, size, sizes, growth)
    elif figure == REGRET:
        study = regret.RegretFigure(
            dict.fromkeys(regret.POLICIES),
            Experiment.on_scenario(REGRET, **size),
        )
    elif figure == PRIOR:
        study = Benchmark(
            unpublished.prior_policies(),
            Experiment.on_scenario(unpublished.PRIOR, **size),
            remarks=unpublished.PRIOR_REMARKS,
        )
    else:
        study = Benchmark(
            dict.fromkeys(unpublished.MOTIVATION_POLICIES),
            Experiment.on_scenario(unpublished.MOTIVATION, **size),
            remarks=unpublished.MOTIVATION_REMARKS,
        )
    effort = Effort(jobs, save_every, rerun_changed, runner)
    return play(study, out, effort, command or _call(figure, size | arguments))


def _check_arguments(figure: str, arguments: Mapping[str, Any]) -> None:
    """Refuse an unknown figure, and arguments of another one or that do not go together."""
    if figure not in FIGURES:
        raise ValueError(
            f"there is no published figure {figure!r} to reproduce; known: {', '.join(FIGURES)}",
        )
    present = [
        name for name, value in arguments.items() if value is not None and value is not False
    ]
    for owner, usual in FIGURES.items():
        unused = [name.replace("_", "-") for name in present if name in usual.options]
        if owner != figure and unused:
            raise ValueError(f"{', '.join(unused)} only goes with {owner}")
    if not arguments["train"] and {"data", "device"} & {*present}:
        raise ValueError("data and device only go with train")
    if len({"train", "loss_curve", "published"} & {*present}) > 1:
        raise ValueError(
            "give one of train, loss-curve and published: each tells the loss of a round",
        )


def _cifar100(size: Mapping[str, int], arguments: Mapping[str, Any]) -> Benchmark:
    """The figure of CIFAR-100, with the losses that are known.

    Losses come from a network that is trained, from a loss curve, or from the published lines.
    """
    experiment = Experiment.on_scenario(CIFAR100, **size)
    figure = cifar100.CIFAR100
    policies = [*figure.end_points]
    if not arguments["train"]:
        lines = None
        curve = arguments["loss_curve"]
        if arguments["published"] is not None:
            lines = cifar100.read_lines(Path(arguments["published"]), figure)
            curve = cifar100.common_curve(lines, figure.rounds)
        return cifar100.Cifar100Figure(
            dict.fromkeys(policies), experiment, loss_curve=curve, lines=lines
        )
    require("torch", extra="train", purpose="Training the network")
    from ata_gym.bench.studies.paper.trained import network  # noqa: PLC0415 - torch

    if arguments["data"] is None:
        raise ValueError(
            "train needs the images of CIFAR-100, which do not come with this package: download"
            " them and give their file as data, as for `ata-gym train --problem cifar100`",
        )
    policies += [*NEWER, default_name("ata_gym/TaskAllocation-v0")]
    training = network.network_training(
        Path(arguments["data"]),
        experiment.scenario.budget,
        arguments["device"] or "cpu",
    )
    return network.NetworkFigure(dict.fromkeys(policies), experiment, training=training)


def _quadratic(
    figure: str,
    size: Mapping[str, int],
    sizes: Sequence[int | str] | None,
    growth: str | None,
) -> Study:
    """The figure of the quadratic, or of workers of mixed families."""
    require("torch", extra="train", purpose=f"The figure {figure}")
    from ata_gym.bench.studies.paper.trained import quadratic  # noqa: PLC0415 - torch

    if figure == MIXED:
        growth = "mixed"
        stem = figure
    else:
        growth = growth or "linear"
        stem = f"{figure}-{growth}"
        if growth not in published_scenarios.GROWTH:
            known = ", ".join(published_scenarios.GROWTH)
            raise ValueError(f"growth must be one of {known}, not {growth!r}")
    available = [*map(str, published_scenarios.SIZES)]
    if sizes is None:
        numbers = [*map(str, SIZES[figure])]
    else:
        numbers = [*map(str, sizes)]
    if sizes is not None and (not numbers or not {*numbers} <= {*available}):
        raise ValueError(
            f"sizes must be numbers of workers among {', '.join(available)}, not"
            f" {', '.join(numbers) or 'none'}",
        )
    policies = dict.fromkeys(PUBLISHED_POLICIES)
    benchmarks = {
        f"{growth}-n{n}": Benchmark(policies, Experiment.on_scenario(f"{stem}-n{n}", **size))
        for n in dict.fromkeys(numbers)
    }
    budget = next(iter(benchmarks.values())).experiment.scenario.budget
    return quadratic.QuadraticFigure(
        policies, benchmarks, growth, quadratic.quadratic_training(budget)
    )


def _call(figure: str, arguments: Mapping[str, Any]) -> list[str]:
    """The words of a command that repeats a call of ``reproduce``."""
    given = {
        name: value
        for name, value in arguments.items()
        if value is not None and value is not False and name != "loss_curve"
    }
    for name in {"data", "published"} & {*given}:
        given[name] = os.fspath(given[name])
    if isinstance(arguments["loss_curve"], str | os.PathLike):
        given["loss_curve"] = os.fspath(arguments["loss_curve"])
    options = "".join(f", {name}={value!r}" for name, value in given.items())
    call = f"bench.reproduce({figure!r}{options}, out='results/reproduce')"
    return ["python", "-c", f"from ata_gym import bench; {call}"]
