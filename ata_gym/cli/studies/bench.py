"""Commands that play policies on a scenario or a trace, and compare them."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Annotated

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, say_error, say_files, show_report
from ata_gym.cli.studies.report import say_failure, show_studied
from ata_gym.cli.studies.train import train

FOLLOWERS = "uta,ata,ata-icml,recent-median,lb-bsp-ema,restarting-beta"
"""Some that use all feedback alike, and some for non-stationary scenarios."""

_SHOWN = "icml2025-cifar100"  # the scenario of the demo
_TRAINED = "gta,ofta,ata-empirical-icml,uta"  # training is short: ata has not begun to learn by then


def bench(
    out: options.Out,
    source: options.Source,
    running: options.Running,
    policies: options.Policies = options.PUBLISHED,
    price: Annotated[float, typer.Option(help="What one unit of worker time costs in units of runtime.")] = 0.0,
    live: Annotated[
        bool, typer.Option("--live", help="Write OUT/report.html every few seconds; it follows by itself in a browser.")
    ] = False,
) -> None:
    r"""Run policies on a scenario or a trace, and report on them.

    Tables, pictures and records are left in a folder. After a kill the same command continues where it stopped, with
    the same result. Policies may be added later: those that have finished are not run again.

    ```
    ata-gym bench --scenario icml2025-regret --rounds 100000 \
        --out results/regret
    ata-gym bench --scenario icml2025-cifar100 --live --out results/cifar100
    ata-gym bench --scenario alibaba-4 --data recordings --out results/alibaba
    ata-gym bench --scenario icml2025-regret --out results/regret \
        --workers ray --address 10.0.0.1:6379
    ata-gym bench --trace times.csv --worker-column machine \
        --duration-column seconds --round-column step --budget 10 \
        --out results/times
    ```
    """
    from ata_gym.bench.benchmark import PolicyFailedWarning, run  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.experiment.store import Folder  # noqa: PLC0415
    from ata_gym.bench.page.render import NAME  # noqa: PLC0415

    found, effort = source.find(), running.effort()
    if live:
        say(f"the report while it runs: {(out / NAME).resolve().as_uri()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyFailedWarning)  # each is said below, with the place of its traceback
        results = run(
            options.split_names(policies), found, rounds=source.rounds, seeds=source.seeds, seed=source.seed,
            price=price, out=out, live=live, command=command_line(), **effort._asdict(),
        )  # fmt: skip
    for made in (part.report for part in results.parts if part.report):
        show_report(made)
    for remark in results.remarks:
        say_error(remark)
    for policy, error in results.failures.items():
        say_failure(policy, error, Folder(out).failure(policy))
    if results.failures:
        raise typer.Exit(1)


def track(
    out: options.Out,
    source: options.Source,
    running: options.Running,
    policies: options.Policies = FOLLOWERS,
    change: Annotated[
        list[int] | None,
        typer.Option(help="The number of rounds before a change; repeatable. By default the changes of the scenario."),
    ] = None,
    before: Annotated[int, typer.Option(help="Rounds to look at before each change.")] = 500,
    after: Annotated[int, typer.Option(help="Rounds to look at after each change.")] = 2_000,
) -> None:
    r"""Measure how many rounds policies need to follow a change.

    The change is abrupt, and what they do meanwhile is drawn. A policy has followed when the expected round time of its
    allocations is within 10 % of the least possible one, on average over 20 rounds. Only policies whose allocations sum
    to the budget can be tracked. After a kill the same command continues where it stopped, with the same result;
    policies may be added later.

    ```
    ata-gym track --scenario changing-permuted-linear-n51 \
        --rounds 22000 --out results/permuted
    ata-gym track --scenario alibaba-4 --data recordings --change 1873 \
        --after 300 --out results/alibaba
    ata-gym track --scenario changing-permuted-linear-n51 \
        --out results/permuted --workers ray --address auto
    ata-gym track --trace times.csv --worker-column machine \
        --duration-column seconds --round-column step --budget 10 \
        --change 1873 --out results/times
    ```
    """
    from ata_gym.bench.study import Study, run  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.tracking.experiment import TrackedRun, Tracking  # noqa: PLC0415
    from ata_gym.bench.tracking.page import about  # noqa: PLC0415
    from ata_gym.bench.tracking.report import report  # noqa: PLC0415

    tracking = Tracking.around(source.experiment(), change or None, before=before, after=after)
    study, names = Study("track", TrackedRun, report, about), options.split_names(policies)
    show_studied(run(study, tracking, names, out, running.effort(), command_line()))


def predictors(
    out: options.Out,
    source: options.Source,
    names: Annotated[str, typer.Option("--predictors", help="Names separated by commas.")] = "last,ema,linear,narx",
    skip: Annotated[int, typer.Option(help="The number of first rounds that do not count.")] = 100,
) -> None:
    r"""Measure the errors of LB-BSP's predictors of speeds.

    They predict each worker's speed in the next round. All predict the same rounds of an even allocation; a speed is
    results per unit of time. The errors are the root mean square of error / the worker's mean speed, and the mean of
    |error| / speed. Both contain the noise of the speeds, which cannot be predicted, and which is smaller the more
    tasks a worker has in a round.

    ```
    ata-gym predictors --scenario changing-load --budget 5100 \
        --rounds 2000 --out results/predictors
    ```
    """
    from ata_gym.bench.predictors import run  # noqa: PLC0415 - it takes a second

    show_report(run(source.experiment(), options.split_names(names, "predictor"), skip, out))


def demo(
    out: options.Out = Path("demo"),
    rounds: Annotated[int, typer.Option(help="Rounds of the published scenario, which has 750,000.")] = 100_000,
    seeds: options.Seeds = 8,
) -> None:
    """Run the published policies and ours, and train a model.

    The defaults of allocation and of races run beside the published policies, on their scenario; the model is a small
    network on real images of digits. Tables and pictures are left in a folder, here demo/.

    ```
    ata-gym demo
    ata-gym demo --rounds 10000 --out results/demo
    ```
    """
    from ata_policies.registry import DEFAULTS  # noqa: PLC0415

    learner, race = DEFAULTS["ata_gym/TaskAllocation-v0"], DEFAULTS["ata_gym/TaskRace-v0"]
    say(f"The five published policies on {_SHOWN}, and two of ours: {learner}, which waits for all that it has")
    say(f"started, and {race}, which cancels what is late. Runtime, worker time and regret:\n")
    names = f"{options.PUBLISHED},{learner},{race}"
    source, running = options.Source(_SHOWN, rounds=rounds, seeds=seeds), options.Running(rerun_changed=True)
    bench(out / "bench", source, running, policies=names)
    say(f"\n{learner} learns the task times from scratch, and OFTA knows their means; none is faster than GTA.")
    say("\nA small network on real images of digits: one training run, its loss against the runtime of each policy.\n")
    train(scenario=_SHOWN, policies=f"{_TRAINED},{learner}", out=out / "training", rerun_changed=True)
    say()
    say_files("all pictures", sorted(path for path in out.rglob("plots/*") if path.suffix in (".png", ".svg")))
