"""``ata-gym bench`` and ``ata-gym reproduce``: run policies, and report on what they did."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ata_gym.checks import whole_number
from ata_gym.cli.console import progress_bars, say, say_error, say_files, show

if TYPE_CHECKING:
    from ata_gym.bench.experiment import Experiment
    from ata_gym.bench.report import Report
    from ata_gym.bench.run import Run
    from ata_gym.bench.store import Folder

PUBLISHED = "gta,ofta,ata-empirical,ata,uta"
"""The five policies of the published figures."""

Out = Annotated[Path, typer.Option(help="The results folder.")]
Scenario = Annotated[str | None, typer.Option(help="A named world; `ata-gym scenarios` lists them.")]
Data = Annotated[Path | None, typer.Option(help="The folder of the file of which a recorded world is made.")]
Trace = Annotated[Path | None, typer.Option(help="Recorded task times, CSV or Parquet, in place of a scenario.")]
WorkerColumn = Annotated[str | None, typer.Option(help="The trace's column that names the worker.")]
DurationColumn = Annotated[str | None, typer.Option(help="The trace's column of task times.")]
RoundColumn = Annotated[
    str | None, typer.Option(help="The trace's column of rounds; without it times are replayed by task.")
]
Budget = Annotated[int | None, typer.Option(help="Results B that a round needs; by default the scenario's.")]
Rounds = Annotated[int | None, typer.Option(help="By default the scenario's horizon, or what the trace holds.")]
Seed = Annotated[int, typer.Option(help="The first seed.")]
Policies = Annotated[str, typer.Option(help="Names separated by commas; also package.module:Class.")]
Seeds = Annotated[int, typer.Option(help="Episodes, side by side, of neighbouring seeds.")]
Jobs = Annotated[int | None, typer.Option(help="Processes; by default one for each policy or processor.")]
SaveEvery = Annotated[float, typer.Option(help="Seconds between checkpoints.")]


def play(
    experiment: Experiment,
    names: str,
    out: Path,
    jobs: int | None = None,
    save_every: float = 10.0,
    run_of: type[Run] | None = None,
) -> tuple[Folder, list[str], dict[str, Exception]]:
    """Run what has not finished yet, with a progress bar for each policy.

    Parameters
    ----------
    experiment
        What to run.
    names
        The policies, separated by commas.
    out
        The results folder.
    jobs, save_every, run_of
        As for ``bench.processes.play_all``.

    Returns
    -------
    The results folder, the policies that have finished, in the order given, and what went wrong for each other.

    Raises
    ------
    ValueError
        For an unknown policy or a folder of another configuration.
    """
    from ata_gym.bench.processes import play_all  # noqa: PLC0415 - these imports take a second
    from ata_gym.bench.run import Run  # noqa: PLC0415
    from ata_gym.bench.store import open_folder  # noqa: PLC0415

    check_effort(jobs, save_every)
    policies = split_names(names)
    if not policies:
        raise ValueError("name at least one policy; `ata-gym policies` lists them")
    for policy in policies:
        experiment.try_out(policy)
    folder = open_folder(out, experiment.config())
    with progress_bars(dict.fromkeys(policies, experiment.rounds)) as progress:
        failures = play_all(
            experiment, policies, folder, run_of or Run, jobs=jobs, save_every=save_every, progress=progress
        )
    return folder, [policy for policy in policies if policy not in failures], failures


def check_effort(jobs: int | None, save_every: float) -> None:
    """Refuse a number of processes or of seconds between checkpoints that makes no sense."""
    if jobs is not None:
        whole_number("jobs", jobs)
    if not save_every >= 0:
        raise ValueError(f"save-every must be at least 0 seconds, not {save_every}")


def split_names(names: str) -> list[str]:
    """The names in a text, each once.

    >>> split_names("ata, uta,ata,")
    ['ata', 'uta']
    """
    return list(dict.fromkeys(name.strip() for name in names.split(",") if name.strip()))


def end_with(failures: Mapping[str, Exception], folder: Folder) -> None:
    """Name each policy that failed; exit with code 1 if there is one."""
    for policy, error in failures.items():
        say_error(f"{policy} failed: {type(error).__name__}: {error} (see {folder.failure(policy)})")
    if failures:
        raise typer.Exit(1)


def run_and_report(
    experiment: Experiment, names: str, out: Path, jobs: int | None = None, save_every: float = 10.0
) -> Report:
    """Run what has not finished yet, then show tables and leave pictures.

    Parameters
    ----------
    experiment, names, out, jobs, save_every
        As for ``play``.

    Raises
    ------
    ValueError
        As ``play``.
    typer.Exit
        With code 1, after the report on the others, if a policy failed.
    """
    from ata_gym.bench.report import report  # noqa: PLC0415 - these imports take a second

    folder, finished, failures = play(experiment, names, out, jobs, save_every)
    if finished:
        made = report(experiment, finished, folder)
        show(*made.tables)
        say_files("tables", made.files)
        say_files("pictures", made.pictures)
    end_with(failures, folder)
    return made


def find_experiment(
    scenario: str | None,
    trace: Path | None,
    worker_column: str | None,
    duration_column: str | None,
    round_column: str | None,
    budget: int | None,
    rounds: int | None,
    seeds: int,
    seed: int,
    price: float = 0.0,
    data: Path | None = None,
) -> Experiment:
    """The experiment that the options of a command ask for; of a trace it says what it holds.

    Raises
    ------
    FileNotFoundError
        If a recorded world or a trace is not there.
    ValueError
        If they do not fit together.
    """
    from ata_gym.bench.experiment import Experiment, recorded_rounds  # noqa: PLC0415
    from ata_gym.bench.recordings import find_world  # noqa: PLC0415

    if (scenario is None) == (trace is None):
        raise ValueError("give either --scenario or --trace, and not both")
    if trace is None:
        unused = {
            "--worker-column": worker_column,
            "--duration-column": duration_column,
            "--round-column": round_column,
        }
        if any(unused.values()):
            raise ValueError(f"{', '.join(name for name, value in unused.items() if value)} only goes with --trace")
        assert scenario is not None
        world = find_world(scenario, data)
        return Experiment.on_scenario(world, rounds=rounds, budget=budget, seeds=seeds, seed=seed, price=price)
    if data is not None:
        raise ValueError("--data only goes with --scenario")
    if worker_column is None or duration_column is None or budget is None:
        raise ValueError("--trace needs --worker-column, --duration-column and --budget")
    experiment = Experiment.on_trace(
        trace,
        worker=worker_column,
        duration=duration_column,
        round=round_column,
        budget=budget,
        rounds=rounds,
        seeds=seeds,
        seed=seed,
        price=price,
    )
    held = recorded_rounds(experiment.pool, budget)
    what = "rounds" if round_column else "times as many tasks as a round needs"
    over = "; a record that ends starts over" if experiment.rounds > held or not round_column else ""
    say(f"{trace} holds {held:,} {what}; {experiment.rounds:,} rounds are played{over}")
    return experiment


def bench(
    out: Out,
    scenario: Scenario = None,
    data: Data = None,
    trace: Trace = None,
    worker_column: WorkerColumn = None,
    duration_column: DurationColumn = None,
    round_column: RoundColumn = None,
    budget: Budget = None,
    policies: Policies = PUBLISHED,
    rounds: Rounds = None,
    seeds: Seeds = 8,
    seed: Seed = 0,
    price: Annotated[float, typer.Option(help="What one unit of worker time costs in units of runtime.")] = 0.0,
    jobs: Jobs = None,
    save_every: SaveEvery = 10.0,
) -> None:
    r"""Run policies on a scenario or a trace; leave tables, pictures and records in a folder.

    Killed and started again it goes on where it was, with the same result. Policies may be added later: those that
    have finished are not run again.

    ```
    ata-gym bench --scenario icml2025-regret --rounds 100000 --out results/regret
    ata-gym bench --scenario alibaba-4 --data recordings --out results/alibaba
    ata-gym bench --trace times.csv --worker-column machine --duration-column seconds \
        --round-column step --budget 10 --out results/times
    ```
    """
    experiment = find_experiment(
        scenario, trace, worker_column, duration_column, round_column, budget, rounds, seeds, seed, price, data
    )
    run_and_report(experiment, policies, out, jobs, save_every)
