"""Policies that train a model each: on real workers, or on data that differ by worker."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import gymnasium as gym
import numpy as np
import polars as pl

import ata_policies
from ata_gym.bench.experiment import Experiment, plural
from ata_gym.bench.report.losses import draw
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.runner.progress import progress_bars
from ata_gym.bench.store import folder as store
from ata_gym.bench.store.folder import Folder, Made
from ata_gym.bench.store.provenance import Provenance, merged, provenance
from ata_gym.bench.studies.training import comparison
from ata_gym.bench.studies.training.comparison import MethodChoice
from ata_gym.bench.studies.training.curves import LossReading
from ata_gym.bench.studies.training.trajectory import (
    Training,
    made_by_problem,
    training_config,
    with_last,
)
from ata_gym.pools import Pool, trace
from ata_gym.scenarios import Scenario
from ata_gym.training.devices.clock import DeviceClock
from ata_gym.training.devices.workers import measure_times
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.training.wrapper import TrainingWrapper
from ata_gym.utils.errors import named_failure
from ata_gym.utils.signals import stop_requested
from ata_policies.steps import decide, play_on

MEASURED = 30
"""The number of tasks of each worker that are timed at first.

The times are for policies that know something of the workers."""
_PLAYED_ENVS = ("ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0")
_RECORDED_COLUMNS = ("loss", "runtime", "total_worker_time")
_COUNT_COLUMNS = ("policy", "round", "update", "computed", "used")


def train_each(
    workers: str,
    policies: Sequence[str],
    trainer: Trainer,
    experiment: Experiment,
    training: Training,
    out: Path,
    methods: Sequence[MethodChoice] = (),
) -> Report:
    """Let policies train a model each from the same weights, with tasks on real workers.

    At first some tasks of each worker are timed; these times are the pool that the policies'
    constants and oracles know. A killed run goes on from its last checkpoint, and policies may be
    added later. On workers of one device all policies have the same losses. The times are measured
    in the run, and not the same the next time.

    Without workers the task times come from the scenario, and ``methods`` train, too. This is for
    data that differ by worker, where each policy and method has gradients of its own.

    Args:
        workers: The workers, such as ``"cuda:0,cuda:1,cpu:2"``; empty for the scenario's workers.
        policies: The names of the policies.
        trainer: A trainer before its first round.
        experiment: With workers, only its rounds and its price count.
        training: With workers, only its problem, data, threads and effort count.
        out: The results folder.
        methods: The methods that train, too, where there are no workers.

    Raises:
        ValueError: For wrong workers, a policy that plays neither allocations nor races, a loss
            that is not finite, or a folder of something else.
        MemoryError: If a device has not enough memory for a task.
        KeyboardInterrupt: On Ctrl-C, after a checkpoint.
    """
    _check_played(policies)
    clock = None
    rounds = experiment.rounds
    price = experiment.scenario.price
    config = experiment.config()
    setting = experiment.about
    threads = training.threads
    if workers:
        clock = DeviceClock(trainer, workers)
        names = [str(worker) for worker in clock.workers]
        config = {"clock": "device", "workers": names, "rounds": rounds, "price": price}
        setting = f"{', '.join(names)}: B = {trainer.budget}"
    folder = store.open_folder(
        out,
        config | training_config(trainer, training.problem, training.data, threads=threads),
    )
    measured = folder.path / "measured" / "times.parquet"
    made_by = made_by_problem(training.problem, __name__)
    policy_runs = [_made(policy, folder, made_by) for policy in policies]
    method_runs = [
        Made(method.label, (comparison.result(folder, method),), made_by) for method in methods
    ]
    store.check_code(
        [Made(training.problem, (measured,), made_by), *policy_runs, *method_runs],
        training.effort.rerun_changed,
    )
    # Policies count rounds, and methods count gradients.
    totals = dict.fromkeys(policies, rounds) | {
        method.label: rounds * trainer.budget for method in methods
    }
    try:
        with named_failure(f"the problem {training.problem}"), progress_bars(totals) as update:
            scenario = replace(experiment.scenario, horizon=rounds)
            if clock is not None:
                scenario = Scenario(
                    _measured_pool(clock, measured, made_by),
                    trainer.budget,
                    rounds,
                    price=price,
                )
            with stop_requested() as stop:
                for run in policy_runs:
                    if not stop():
                        progress = partial(update, run.name)
                        save_every = training.effort.save_every
                        _train(run, clock, trainer, scenario, progress, save_every, stop)
            for method in methods:
                comparison.run_once(
                    method,
                    trainer,
                    experiment,
                    folder,
                    partial(update, method.label),
                    made_by,
                    threads,
                )
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    reading = LossReading.of(trainer.problem, rounds)
    curves = _curves([*policy_runs, *method_runs], experiment, reading, bool(workers))
    about = f"{trainer.problem.name} on {setting}, {plural(rounds, 'round')}"
    return _report(curves, reading.label(), about, bool(workers), price, out)


def _check_played(policies: Sequence[str]) -> None:
    """Refuse a policy that plays neither allocations nor races, with a ``ValueError``."""
    for policy in policies:
        env_id = ata_policies.load(policy).env_id
        if env_id not in _PLAYED_ENVS:
            raise ValueError(
                f"{policy} plays {env_id}, and real workers run allocations and races: leave"
                " it out",
            )


def _made(policy: str, folder: Folder, problem: Provenance) -> Made:
    """What a policy leaves: its result, its checkpoint, and their provenance."""
    files = folder.result(policy), folder.checkpoint(policy).with_suffix(".pt")
    return Made(policy, files, merged(provenance(policy, __name__), problem))


def _measured_pool(clock: DeviceClock, path: Path, made_by: Provenance) -> Pool:
    """The pool of the measured times, which are kept in a file."""
    n = len(clock.workers)
    if not store.finished(path):
        # Workers take turns: row k of the file is task k // n of worker k mod n.
        task, worker = np.divmod(np.arange(MEASURED * n), n)
        times = measure_times(clock.trainer, clock.workers, MEASURED)
        store.write_frame(
            path,
            pl.DataFrame({"worker": worker, "task": task, "duration": times.T.ravel()}),
            made_by,
        )
    return trace(list(store.read_frame(path)["duration"].to_numpy().reshape(MEASURED, n).T))


def _train(
    run: Made,
    clock: DeviceClock | None,
    trainer: Trainer,
    scenario: Scenario,
    progress: Callable[[int], None],
    save_every: float,
    stop: Callable[[], bool],
) -> None:
    """Let one policy train to the end, or from its checkpoint, until it has a result."""
    result, checkpoint = run.files
    name = run.name
    seed = trainer.settings.seed
    rounds = int(scenario.horizon or 0)
    if store.finished(result):
        progress(rounds)
        return
    env: Any = gym.make(ata_policies.load(name).env_id, scenario=scenario, backend=clock)
    if clock:
        env = TrainingWrapper(env)
    else:
        env = TrainingWrapper(env, trainer.problem, **vars(trainer.settings))
    policy = ata_policies.make(name, env, seed=seed)
    observation, _ = env.reset(seed=seed)
    state: Any = None
    rows: list[list[float]] = []
    if checkpoint.exists():
        # Any decision gives a state of the right form, which the checkpoint then fills.
        example_state = decide(policy, env, observation)[1]
        observation, (state, table) = env.load(checkpoint, like=(example_state, np.empty(0)))
        rows = table.tolist()
    else:
        store.begin(checkpoint, run.by)
    last_save = perf_counter()
    for step in islice(play_on(policy, env, observation, state), rounds - len(rows)):
        rows.append([step.info[quantity] for quantity in _RECORDED_COLUMNS])
        progress(len(rows))
        stopped = stop()
        if stopped or perf_counter() - last_save >= save_every:
            env.save(checkpoint, (step.state, np.array(rows)))
            last_save = perf_counter()
        if stopped:
            return
    frame = pl.DataFrame(rows, _RECORDED_COLUMNS, orient="row").with_row_index("round", 1)
    frame = with_last(frame, env.trainer.evaluate())
    store.write_frame(result, frame.with_columns(policy=pl.lit(name)), run.by)
    store.discard(checkpoint)


def _curves(
    runs: Sequence[Made],
    experiment: Experiment,
    reading: LossReading,
    timed: bool,
) -> list[pl.DataFrame]:
    """The losses of each policy and method as they are read, on their clocks.

    Times on real workers are shown for every round, other times at log-spaced rounds.
    """
    curves = []
    for run in runs:
        frame = store.read_frame(run.files[0]).with_columns(policy=pl.lit(run.name))
        run_reading = reading.stretched(len(frame) / experiment.rounds)
        frame = frame.with_columns(loss=run_reading(frame["loss"].forward_fill()))
        if not timed:
            frame = frame[replace(experiment, rounds=len(frame)).record_at() - 1]
        curves.append(frame)
    return curves


def _report(
    curves: Sequence[pl.DataFrame],
    label: str,
    about: str,
    timed: bool,
    price: float,
    out: Path,
) -> Report:
    cost = pl.col("runtime") + price * pl.col("total_worker_time")
    summary = pl.concat((curve.tail(1) for curve in curves), how="diagonal_relaxed")
    # Without a price, the cost is the runtime.
    cost_column = {"cost": cost} if price else {}
    summary = summary.select("policy", pl.exclude(_COUNT_COLUMNS), **cost_column)
    titles = [name.removeprefix("total_").replace("_", " ") for name in summary.columns[1:]]
    rows = [
        (str(policy), *(f"{figure:.4g}" for figure in figures))
        for policy, *figures in summary.iter_rows()
    ]
    if timed:
        title = f"{about}\ntimes in seconds, as measured in this run"
    else:
        title = about
    table = Table(title, {"policy": LEFT, **right(titles)}, rows)
    files = write(out, {"table.md": markdown([table]), "table.csv": summary})
    lines = pl.concat(curve.select("policy", *_RECORDED_COLUMNS) for curve in curves)
    if timed:
        heading = f"{about}, times in seconds"
    else:
        heading = about
    pictures = draw(lines, lines.head(0), label, heading, out / "plots" / "loss")
    return Report(summary, [table], files, pictures)
