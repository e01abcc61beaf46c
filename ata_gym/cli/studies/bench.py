"""Commands that play policies on a scenario or a trace, and compare them."""

from __future__ import annotations

import warnings
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, say_error, say_files, show_report
from ata_gym.cli.studies.report import end_with, say_failure, show_studied, show_with_page
from ata_gym.cli.studies.train import Model, Trajectory, train

if TYPE_CHECKING:
    from ata_gym.bench.runner.jobs import Effort
    from ata_gym.bench.studies.leaderboard.experiment import Leaderboard
    from ata_gym.scenarios import Scenario

FOLLOWERS = "uta,ata,ata-icml,recent-median,lb-bsp-ema,restarting-beta"
"""Some policies that use all feedback alike, and some for non-stationary scenarios."""

_SHOWN = "icml2025-cifar100"
"""The scenario of the demo."""

_TRAINED = "gta,ofta,ata-empirical-icml,uta"
"""The policies of the training in the demo.

The training is short, and ata does not begin to learn in it.
"""


def bench(
    source: options.Source,
    running: options.Running,
    out: options.Out = None,
    policies: options.Policies = options.COMPARED,
    price: Annotated[
        float,
        typer.Option(help="What one unit of worker time costs in units of runtime."),
    ] = 0.0,
    loss_curve: options.LossCurve = None,
    sweep: Annotated[
        str | None,
        typer.Option(
            metavar="PARAMETER=VALUE,...",
            help=(
                "Run at each value of budget, price, rounds, workers (of a published scenario) or a"
                " hyperparameter."
            ),
        ),
    ] = None,
) -> None:
    r"""Run policies on a scenario or a trace, and report on them.

    Tables, pictures and records are left in a folder. After a kill the same command continues where
    it stopped, with the same result. Policies may be added later: those that have finished are not
    run again. With --sweep each value of a parameter has a folder of its own, and one table and one
    picture show all.

    ```
    ata-gym bench --scenario icml2025-regret --rounds 100000 \
        --out results/regret
    ata-gym bench --scenario icml2025-quadratic-linear-n51 --rounds 10000 \
        --sweep budget=5,10,20 --out results/budgets
    ata-gym bench --scenario icml2025-cifar100 --out results/cifar100
    ata-gym bench --scenario icml2025-regret --loss-curve loss.csv --out loss
    ata-gym bench --scenario alibaba-4 --data recordings --out results/alibaba
    ata-gym bench --scenario icml2025-regret --out results/regret \
        --workers ray --address 10.0.0.1:6379
    ata-gym bench --trace times.csv --worker-column machine \
        --duration-column seconds --round-column step --budget 10 \
        --out results/times
    ```
    """
    from ata_gym.bench import PolicyFailedWarning, run
    from ata_gym.bench.store.folder import Folder

    names = options.split_names(policies)
    scenario = source.find()
    name_parts = [scenario.name]
    if sweep is not None:
        name_parts += ["by", sweep.partition("=")[0]]
    out = options.results_folder(out, *name_parts)
    shared: dict[str, Any] = {
        "seeds": source.seeds,
        "seed": source.seed,
        "rounds": source.rounds,
        "price": price,
        "out": out,
        "command": command_line(),
        **running.effort()._asdict(),
    }
    with warnings.catch_warnings():
        # each failure is reported at the end, with the place of its traceback
        warnings.simplefilter("ignore", PolicyFailedWarning)
        if sweep is not None:
            if loss_curve is not None:
                raise ValueError(
                    "--loss-curve does not go with --sweep: give it without, for each value alone",
                )
            _bench_at_each(sweep, names, source, scenario, shared)
            return
        results = run(names, scenario, loss_curve=loss_curve, **shared)
    for part in results.parts:
        if part.report:
            show_report(part.report)
    for remark in results.remarks:
        say_error(remark)
    end_with(results.failures, Folder(out))


def _bench_at_each(
    sweep: str,
    names: list[str],
    source: options.Source,
    scenario: Scenario,
    shared: dict[str, Any],
) -> None:
    """Play policies at each value of a parameter, show the results, and end as ``bench`` does."""
    from ata_gym.bench.store.folder import Folder
    from ata_gym.bench.studies import sweep as sweeps

    parameter, values = split_sweep(sweep)
    # the scenario of a trace was made with the budget, which cannot be swept then
    if source.trace:
        budget = None
    else:
        budget = source.budget
    out = shared["out"]
    swept = sweeps.sweep(names, scenario, parameter, values, budget=budget, **shared)
    show_report(swept.report(out))
    remarks = [remark for point in swept.points for remark in point.results.remarks]
    for remark in dict.fromkeys(remarks):
        say_error(remark)
    failed = [
        (point, name, error)
        for point in swept.points
        for name, error in point.results.failures.items()
    ]
    for point, name, error in failed:
        note = Folder(out / point.folder).failure(name)
        say_failure(f"{name} at {parameter} = {point.value}", error, note)
    if failed:
        raise typer.Exit(1)


def split_sweep(text: str) -> tuple[str, list[Any]]:
    """A parameter and its values, from a text such as ``"budget=5,10,20"``.

    Raises:
        ValueError: For anything else.

    Example:
        >>> split_sweep("alpha=1,2.5"), split_sweep("memory=everything,window")
        (('alpha', [1, 2.5]), ('memory', ['everything', 'window']))
    """
    from ata_policies.registry import parse

    parameter, equals, values = text.partition("=")
    if not (equals and parameter.isidentifier()):
        raise ValueError(
            f"--sweep must be a parameter with its values, such as budget=5,10,20, not {text!r}",
        )
    # a value is read as a hyperparameter in the name of a policy is
    return parameter, [
        parse(f"{parameter}:value={item}")[1]["value"]
        for item in options.split_names(values, "value")
    ]


def track(
    source: options.Source,
    running: options.Running,
    out: options.Out = None,
    policies: options.Policies = FOLLOWERS,
    change: Annotated[
        list[int] | None,
        typer.Option(
            help=(
                "The number of rounds before a change; repeatable. By default the changes of the"
                " scenario."
            ),
        ),
    ] = None,
    before: Annotated[int, typer.Option(help="Rounds to look at before each change.")] = 500,
    after: Annotated[int, typer.Option(help="Rounds to look at after each change.")] = 2_000,
) -> None:
    r"""Measure how many rounds policies need to follow a change.

    The change is abrupt, and what they do meanwhile is drawn. A policy has followed when the
    expected round time of its allocations is within 10 % of the least possible one, on average over
    20 rounds. Only policies whose allocations sum to the budget can be tracked. After a kill the
    same command continues where it stopped, with the same result; policies may be added later.

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
    from ata_gym.bench.runner.play import run
    from ata_gym.bench.studies.tracking.experiment import TrackedRun, Tracking
    from ata_gym.bench.studies.tracking.report import report

    tracking = Tracking.around(source.experiment(), change or None, before=before, after=after)
    out = options.results_folder(out, tracking.scenario.name, "tracked")
    names = options.policy_names(policies)
    show_studied(run(tracking, names, out, running.effort(), report, TrackedRun), with_page=False)


SetName = StrEnum("SetName", ["steady", "changing", "unseen", "drawn"])
"""The sets of scenarios."""


def leaderboard(
    running: options.Running,
    set_: Annotated[
        SetName,
        typer.Option(
            "--set",
            help=(
                "Scenarios whose workers stay as they are, scenarios that change, a check on kinds"
                " of workers that no policy was tuned on, or workers that are drawn anew for each"
                " seed."
            ),
        ),
    ] = SetName.steady,
    quick: Annotated[
        bool,
        typer.Option(
            "--quick",
            help="Take a quick look of two minutes: few scenarios, rounds, prices and seeds.",
        ),
    ] = False,
    out: options.Out = None,
    policies: Annotated[
        str | None,
        options.policies_option(
            help=(
                "Names separated by commas, also package.module:Class; by default those of the set:"
                " steady has all for workers that stay as they are, and some that follow changes."
            ),
        ),
    ] = None,
    scenarios: Annotated[
        str | None,
        typer.Option(help="Scenarios, separated by commas; by default all."),
    ] = None,
    prices: Annotated[
        str | None,
        typer.Option(help="Prices, comma-separated; by default those of the set."),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(help="The folder of the recordings that some scenarios replay."),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option(
            help=(
                "Paired episodes in each scenario; by default 8 for steady, 32 for drawn, else 4;"
                " quick 4, or 8."
            ),
        ),
    ] = None,
) -> None:
    r"""Rank policies by cost on a fixed set of scenarios.

    The cost is runtime + price x worker time, and a set has a version. All policies are played on
    the same random task times; every ratio is one of values on the same seeds, with its 95 %
    confidence interval. Learners are ranked; oracles, which know what these must learn, and
    baselines are shown beside them, and so is the worst seed beside the mean; cells.csv has the
    figures of every seed. `ata-gym policies NAME --cost` times decisions. After a kill the same
    command continues where it stopped, with the same result; policies may be added later.

    ```
    ata-gym leaderboard --quick
    ata-gym leaderboard --data recordings --out results/leaderboard
    ata-gym leaderboard --set changing --data recordings
    ata-gym leaderboard --set unseen --scenarios walk,lomax --prices 0 \
        --policies restarting-beta,distribution-learner
    ata-gym leaderboard --set drawn --quick --workers ray --address auto
    ata-gym leaderboard \
        --policies ata-icml,thompson,my_package.my_module:MyPolicy:shape=4
    ```
    """
    from ata_gym.bench.studies.leaderboard.run import set_up

    effort = running.effort()
    board = set_up(
        set_,
        quick=quick,
        policies=None if policies is None else options.policy_names(policies),
        scenarios=None if scenarios is None else options.split_names(scenarios, "scenario"),
        prices=None if prices is None else split_prices(prices),
        seeds=seeds,
        data=data,
        out=out,
    )
    _rank(board, effort)


def _rank(board: Leaderboard, effort: Effort) -> None:
    """Play a leaderboard, show it, and exit with code 1 if a policy failed."""
    from ata_gym.bench.studies.leaderboard.run import run

    ranking, failures = run(board, effort, command_line())
    show_with_page(ranking, board.out)
    for job, error in failures.items():
        say_failure(
            f"{job.policy} in {job.experiment.scenario.name}",
            error,
            job.folder.failure(job.policy),
        )
    if failures:
        raise typer.Exit(1)


def split_prices(text: str) -> list[float]:
    """Prices separated by commas, each once.

    Raises:
        ValueError: If one is no number of at least 0.

    Example:
        >>> split_prices("0,0.1,0")
        [0.0, 0.1]
    """
    from ata_gym.utils.validation import non_negative

    try:
        return [
            non_negative("each of --prices", float(name))
            for name in options.split_names(text, "price")
        ]
    except ValueError as error:
        raise ValueError(
            f"--prices must be numbers of at least 0, separated by commas: {error}",
        ) from error


def demo(
    out: Annotated[Path, options.folder_option(help="The results folder.")] = Path("demo"),
    rounds: Annotated[
        int,
        typer.Option(help="Rounds of the published scenario, which has 750,000."),
    ] = 100_000,
    seeds: options.Seeds = 8,
) -> None:
    """Run the published policies and ours, and train a model.

    The defaults of allocation and of races run beside the published policies, on their scenario;
    the model is a small network on real images of digits. Tables and pictures are left in a folder,
    here demo/.

    ```
    ata-gym demo
    ata-gym demo --rounds 10000 --out results/demo
    ```
    """
    from ata_policies.registry import DEFAULTS

    learner = DEFAULTS["ata_gym/TaskAllocation-v0"]
    race = DEFAULTS["ata_gym/TaskRace-v0"]
    say(
        f"The five published policies on {_SHOWN}, and two of ours: {learner}, which waits for all"
        " that it has",
    )
    say(f"started, and {race}, which cancels what is late. Runtime, worker time and regret:\n")
    names = f"{options.PUBLISHED},{learner},{race}"
    source = options.Source(_SHOWN, rounds=rounds, seeds=seeds)
    running = options.Running(rerun_changed=True)
    bench(source, running, out / "bench", names)
    say(
        f"\n{learner} learns the task times from scratch, and OFTA knows their means; none is"
        " faster than GTA.",
    )
    say(
        "\nA small network on real images of digits: one training run, its loss against the runtime"
        " of each policy.\n",
    )
    train(
        _SHOWN,
        Model(),
        Trajectory(),
        out / "training",
        f"{_TRAINED},{learner}",
        rerun_changed=True,
    )
    say()
    say_files(
        "all pictures",
        sorted(path for path in out.rglob("plots/*") if path.suffix in (".png", ".svg")),
    )
