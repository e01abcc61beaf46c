"""Commands that play policies on a scenario or a trace, and compare them."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ata_gym.cli import options
from ata_gym.cli.console import (
    command_line,
    failures_at_the_end,
    say,
    say_files,
    show_results,
)
from ata_gym.cli.guide import NEXT
from ata_gym.cli.studies.train import Model, Trajectory, train

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

    Tables, pictures and records are written to a folder. After a kill the same command continues
    where it stopped, with the same result. Policies may be added later: those that have finished
    are not run again. With --sweep each value of a parameter has a folder of its own, and one table
    and one picture show all.

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
    from ata_gym import bench as studies

    names = options.split_names(policies)
    scenario = source.find()
    name_parts = [scenario.name]
    if sweep is not None:
        name_parts += ["by", sweep.partition("=")[0]]
    shared: dict[str, Any] = {
        "seeds": source.seeds,
        "seed": source.seed,
        "rounds": source.rounds,
        "price": price,
        "out": options.results_folder(out, *name_parts),
        "command": command_line(),
        **running.effort()._asdict(),
    }
    with failures_at_the_end():
        if sweep is None:
            results = studies.run(names, scenario, loss_curve=loss_curve, **shared)
        else:
            if loss_curve is not None:
                raise ValueError(
                    "--loss-curve does not go with --sweep: give it without, for each value alone",
                )
            parameter, values = split_sweep(sweep)
            # the scenario of a trace was made with the budget, which cannot be swept then
            if source.trace:
                budget = None
            else:
                budget = source.budget
            results = studies.sweep(names, scenario, parameter, values, budget=budget, **shared)
    show_results(results)


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
    from ata_gym import bench as studies

    scenario = source.find()
    with failures_at_the_end():
        results = studies.track(
            options.split_names(policies),
            scenario,
            changes=change or None,
            before=before,
            after=after,
            rounds=source.rounds,
            seeds=source.seeds,
            seed=source.seed,
            out=options.results_folder(out, scenario.name, "tracked"),
            command=command_line(),
            **running.effort()._asdict(),
        )
    show_results(results)


SetName = StrEnum("SetName", ["steady", "changing", "unseen", "drawn", "cluster"])
"""The sets of scenarios."""

Timings = Annotated[
    bool,
    typer.Option(
        "--timings",
        help="Measure what a decision of each policy costs, too; it takes minutes, once.",
    ),
]


def leaderboard(
    running: options.Running,
    set_: Annotated[
        SetName,
        typer.Option(
            "--set",
            help=(
                "Scenarios whose workers stay as they are, scenarios that change, a check on kinds"
                " of workers that no policy was tuned on, workers that are drawn anew for each"
                " seed, or workers as clusters have them."
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
                "Names separated by commas, also package.module:Class; by default the set's own:"
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
        typer.Option(help="Prices, comma-separated; by default the set's own."),
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
    timings: Timings = False,
) -> None:
    r"""Rank policies by cost on a fixed set of scenarios.

    The cost is runtime + price x worker time, and a set has a version. All policies are played on
    the same random task times; every ratio is one of values on the same seeds, with its 95 %
    confidence interval. Learners are ranked; oracles, which know what these must learn, and
    baselines are shown next to them, and so is the worst seed next to the mean; cells.csv has the
    figures of every seed. With --timings there is a table of the processor time of a decision of
    each policy on this machine, as `ata-gym policies NAME --cost` measures it. After a kill the
    same command continues where it stopped, with the same result; policies may be added later.

    ```
    ata-gym leaderboard --quick
    ata-gym leaderboard --data recordings --out results/leaderboard
    ata-gym leaderboard --set changing --data recordings
    ata-gym leaderboard --set unseen --scenarios walk,lomax --prices 0 \
        --policies restarting-beta,distribution-learner
    ata-gym leaderboard --set drawn --quick --workers ray --address auto
    ata-gym leaderboard --set cluster --prices 0
    ata-gym leaderboard \
        --policies ata-icml,thompson,my_package.my_module:MyPolicy:shape=4
    ```
    """
    from ata_gym import bench as studies
    from ata_gym.bench.studies.leaderboard.sets import SETS

    name_parts = ["leaderboard", set_, SETS[set_].version]
    if quick:
        name_parts.append("quick")
    with failures_at_the_end():
        results = studies.leaderboard(
            set_,
            **_chosen(policies, scenarios, prices),
            quick=quick,
            seeds=seeds,
            data=data,
            timings=timings,
            out=options.results_folder(out, *name_parts),
            command=command_line(),
            **running.effort()._asdict(),
        )
    show_results(results)


def _chosen(policies: str | None, scenarios: str | None, prices: str | None) -> dict[str, Any]:
    """What the user chose for a leaderboard; the set decides on the rest."""
    chosen: dict[str, Any] = {}
    if policies is not None:
        chosen["policies"] = options.split_names(policies)
    if scenarios is not None:
        chosen["scenarios"] = options.split_names(scenarios, "scenario")
    if prices is not None:
        chosen["prices"] = split_prices(prices)
    return chosen


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

    The defaults of allocation and of races run with the published policies, on their scenario;
    the model is a small network on real images of digits. Tables and pictures go into a folder,
    here demo/.

    ```
    ata-gym demo
    ata-gym demo --rounds 10000 --out results/demo
    ```
    """
    from ata_gym.bench.report.page.render import NAME
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
    pages = [out / folder / NAME for folder in ("bench", "training")]
    say("\nOpen " + " and ".join(map(str, pages)) + " in a browser. Then:\n\n" + NEXT)
