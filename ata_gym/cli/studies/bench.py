"""``ata-gym bench``: run policies on a scenario or a trace, and report on them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ata_gym.bench.progress import progress_bars
from ata_gym.cli import options
from ata_gym.cli.console import command_line, say, say_error, show_report
from ata_gym.cli.studies.report import pages
from ata_gym.utils.errors import described

if TYPE_CHECKING:
    from ata_gym.bench.experiment.experiment import Experiment
    from ata_gym.bench.experiment.jobs import Effort
    from ata_gym.bench.experiment.run import PolicyRun
    from ata_gym.bench.experiment.store import Folder
    from ata_gym.bench.report.report import Report


def bench(
    out: options.Out,
    scenario: options.Scenario = None,
    data: options.Data = None,
    trace: options.Trace = None,
    worker_column: options.WorkerColumn = None,
    duration_column: options.DurationColumn = None,
    round_column: options.RoundColumn = None,
    budget: options.Budget = None,
    policies: options.Policies = options.PUBLISHED,
    rounds: options.Rounds = None,
    seeds: options.Seeds = 8,
    seed: options.Seed = 0,
    price: Annotated[float, typer.Option(help="What one unit of worker time costs in units of runtime.")] = 0.0,
    jobs: options.Jobs = None,
    save_every: options.SaveEvery = 10.0,
    workers: options.Workers = options.Where.local,
    address: options.Address = None,
    rerun_changed: options.RerunChanged = False,
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

    columns = worker_column, duration_column, round_column
    found = options.find_scenario(scenario, data, trace, columns, budget, rounds)
    effort = options.checked_effort(jobs, save_every, rerun_changed, workers, address)
    if live:
        say(f"the report while it runs: {(out / NAME).resolve().as_uri()}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PolicyFailedWarning)  # each is said below, with the place of its traceback
        results = run(
            options.split_names(policies), found, rounds=rounds, seeds=seeds, seed=seed, price=price, out=out,
            live=live, command=command_line(), **effort._asdict(),
        )  # fmt: skip
    for made in (part.report for part in results.parts if part.report):
        show_report(made)
    for remark in results.remarks:
        say_error(remark)
    for policy, error in results.failures.items():
        say_failure(policy, error, Folder(out).failure(policy))
    if results.failures:
        raise typer.Exit(1)


def run_and_report(
    experiment: Experiment,
    names: str,
    out: Path,
    effort: Effort,
    run_of: type[PolicyRun] | None = None,
    report_on: Callable[[Any, list[str], Folder], Report] | None = None,
    *,
    study: str = "bench",
    about: Callable[[Any, list[str]], dict[str, Any]] | None = None,
) -> Report:
    """As ``play``, then show the report on those that have finished; exit code 1 after it if a policy failed.

    The page of the study is left in the folder.
    """
    from ata_gym.bench.page.note import about_experiment, write_note  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.report.report import report  # noqa: PLC0415

    def begun(folder: Folder, policies: list[str]) -> None:
        write_note(folder.path, study, command_line(), (about or about_experiment)(experiment, policies))

    folder, finished, failures = play(experiment, names, out, effort, run_of, begun)
    if finished:
        made = (report_on or report)(experiment, finished, folder)
        show_report(made._replace(files=[*made.files, *pages(folder.path)]))
    end_with(failures, folder)
    return made


def play(
    experiment: Experiment,
    names: str,
    out: Path,
    effort: Effort,
    run_of: type[PolicyRun] | None = None,
    begun: Callable[[Folder, list[str]], None] | None = None,
) -> tuple[Folder, list[str], dict[str, Exception]]:
    """Run what has not finished yet, with a progress bar for each policy; the names are separated by commas.

    ``begun`` is called with the folder when it is open.

    Returns the results folder, the policies that have finished, in the order given, and what went wrong for each other.
    ValueError for an unknown policy, one that fails in its first round, or a folder of another configuration.
    """
    from ata_gym.bench.experiment.jobs import play_all  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.experiment.run import PolicyRun  # noqa: PLC0415
    from ata_gym.bench.experiment.store import open_folder  # noqa: PLC0415

    policies = options.split_names(names)
    for policy in policies:
        experiment.try_out(policy)
    folder = open_folder(out, experiment.config())
    if begun:
        begun(folder, policies)
    with progress_bars(dict.fromkeys(policies, experiment.rounds)) as progress:
        failures = play_all(experiment, policies, folder, run_of or PolicyRun, effort, progress)
    return folder, [policy for policy in policies if policy not in failures], failures


def end_with(failures: Mapping[str, Exception], folder: Folder) -> None:
    """Name each policy that failed; exit with code 1 if there is one.

    Where nothing was played, the folder takes a corrected command.
    """
    from ata_gym.bench.experiment.store import withdrawn_on_failure  # noqa: PLC0415

    for policy, error in failures.items():
        say_failure(policy, error, folder.failure(policy))
    if failures:
        with withdrawn_on_failure(folder):
            raise typer.Exit(1)


def say_failure(what: str, error: Exception, note: Path) -> None:
    """Say what failed, why, and where its traceback is."""
    from ata_gym.bench.experiment.jobs import KilledError  # noqa: PLC0415

    said = str(error) if isinstance(error, KilledError) else described(error)
    say_error(f"{what} failed: {said} (see {note})")
