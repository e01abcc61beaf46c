"""Policies that train a model each for itself: on real workers, or on data that differ by worker."""

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
from ata_gym.bench.experiment import store
from ata_gym.bench.experiment.experiment import Experiment, plural
from ata_gym.bench.experiment.provenance import Provenance, merged, provenance
from ata_gym.bench.experiment.store import Folder, Made
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report.losses import draw
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.pools import Pool, trace
from ata_gym.scenarios import Scenario
from ata_gym.training.devices.clock import DeviceClock
from ata_gym.training.devices.workers import measure_times
from ata_gym.training.studies import comparison
from ata_gym.training.studies.comparison import MethodChoice
from ata_gym.training.studies.curves import LossReading
from ata_gym.training.studies.trajectory import Training, made_by_problem, training_config, with_last
from ata_gym.training.trainer.trainer import Trainer
from ata_gym.training.wrapper import TrainingWrapper
from ata_gym.utils.errors import named_failure
from ata_gym.utils.signals import stop_requested
from ata_policies.steps import decide, play_on

MEASURED = 30  # tasks of each worker that are timed at first, for policies that know something of the workers
_PLAYED = ("ata_gym/TaskAllocation-v0", "ata_gym/TaskRace-v0")
_RECORDED, _COUNTS = ("loss", "runtime", "total_worker_time"), ("policy", "round", "update", "computed", "used")


def train_each(
    workers: str, policies: Sequence[str], trainer: Trainer, experiment: Experiment, training: Training, out: Path,
    methods: Sequence[MethodChoice] = (),
) -> Report:  # fmt: skip
    """Let policies train a model from the same weights, each with its tasks run and timed on real workers.

    At first some tasks of each worker are timed; these times are the pool that the policies' constants and oracles
    know. A killed run goes on from its last checkpoint, and policies may be added later. On workers of one device all
    policies have the same losses; the times are those of the run, and not the same the next time.

    ``workers`` are such as ``"cuda:0,cuda:1,cpu:2"``. Of ``experiment`` and ``training`` the rounds, price, problem,
    data and effort count. Without workers all of both counts, task times are those of the scenario, and ``methods``
    train, too: for data that differ by worker, where each has gradients of its own. ValueError for wrong workers, a
    policy that plays neither allocations nor races, a loss that is not finite, or a folder of something else;
    MemoryError if a device has not enough memory for a task; KeyboardInterrupt on Ctrl-C, after a checkpoint.
    """
    for policy in policies:
        env_id = ata_policies.load(policy).env_id
        if env_id not in _PLAYED:
            raise ValueError(f"{policy} plays {env_id}, and real workers run allocations and races: leave it out")
    clock, rounds, price = None, experiment.rounds, experiment.scenario.price
    ours, on, threads = experiment.config(), experiment.about, training.threads
    if workers:
        clock = DeviceClock(trainer, workers)
        names = [str(worker) for worker in clock.workers]
        ours = {"clock": "device", "workers": names, "rounds": rounds, "price": price}
        on = f"{', '.join(names)}: B = {trainer.budget}"
    folder = store.open_folder(out, ours | training_config(trainer, training.problem, training.data, threads=threads))
    measured, by = folder.path / "measured" / "times.parquet", made_by_problem(training.problem, __name__)
    made = [_made(policy, folder, by) for policy in policies]
    runs = [Made(one.label, (comparison.result(folder, one),), by) for one in methods]
    store.check_code([Made(training.problem, (measured,), by), *made, *runs], training.effort.rerun_changed)
    totals = dict.fromkeys(policies, rounds) | {one.label: rounds * trainer.budget for one in methods}
    try:
        with named_failure(f"the problem {training.problem}"), progress_bars(totals) as update:
            scenario = replace(experiment.scenario, horizon=rounds)
            if clock is not None:
                scenario = Scenario(_measured_pool(clock, measured, by), trainer.budget, rounds, price=price)
            with stop_requested() as stop:
                for one in made:
                    if not stop():
                        told, save_every = partial(update, one.name), training.effort.save_every
                        _train(one, clock, trainer, scenario, told, save_every, stop)
            for choice in methods:
                comparison.run_once(choice, trainer, experiment, folder, partial(update, choice.label), by, threads)
    except FloatingPointError as error:
        raise ValueError(str(error)) from error
    reading, curves = LossReading.of(trainer.problem, rounds), []
    for one in (*made, *runs):
        frame = store.read_frame(one.files[0]).with_columns(policy=pl.lit(one.name))
        frame = frame.with_columns(loss=reading.stretched(len(frame) / rounds)(frame["loss"].forward_fill()))
        curves.append(frame if workers else frame[replace(experiment, rounds=len(frame)).record_at() - 1])
    about = f"{trainer.problem.name} on {on}, {plural(rounds, 'round')}"
    return _report(curves, reading.label(), about, bool(workers), price, out)


def _made(policy: str, folder: Folder, problem: Provenance) -> Made:
    files = folder.result(policy), folder.checkpoint(policy).with_suffix(".pt")
    return Made(policy, files, merged(provenance(policy, __name__), problem))


def _measured_pool(clock: DeviceClock, path: Path, made_by: Provenance) -> Pool:
    n = len(clock.workers)
    if not store.finished(path):
        task, worker = np.divmod(np.arange(MEASURED * n), n)
        times = measure_times(clock.trainer, clock.workers, MEASURED)
        store.write_frame(path, pl.DataFrame({"worker": worker, "task": task, "duration": times.T.ravel()}), made_by)
    return trace(list(store.read_frame(path)["duration"].to_numpy().reshape(MEASURED, n).T))


def _train(
    made: Made, clock: DeviceClock | None, trainer: Trainer, scenario: Scenario, progress: Callable[[int], None],
    save_every: float, stop: Callable[[], bool],
) -> None:  # fmt: skip
    (result, saved), name, seed = made.files, made.name, trainer.settings.seed
    rounds = int(scenario.horizon or 0)
    if store.finished(result):
        progress(rounds)
        return
    env: Any = gym.make(ata_policies.load(name).env_id, scenario=scenario, backend=clock)
    env = TrainingWrapper(env) if clock else TrainingWrapper(env, trainer.problem, **vars(trainer.settings))
    policy = ata_policies.make(name, env, seed=seed)
    observation, _ = env.reset(seed=seed)
    state: Any = None
    rows: list[list[float]] = []
    if saved.exists():
        like = decide(policy, env, observation)[1]
        observation, (state, table) = env.load(saved, like=(like, np.empty(0)))
        rows = table.tolist()
    else:
        store.begin(saved, made.by)
    last = perf_counter()
    for step in islice(play_on(policy, env, observation, state), rounds - len(rows)):
        rows.append([step.info[quantity] for quantity in _RECORDED])
        progress(len(rows))
        stopped = stop()
        if stopped or perf_counter() - last >= save_every:
            env.save(saved, (step.state, np.array(rows)))
            last = perf_counter()
        if stopped:
            return
    frame = pl.DataFrame(rows, _RECORDED, orient="row").with_row_index("round", 1)
    frame = with_last(frame, env.trainer.evaluate())
    store.write_frame(result, frame.with_columns(policy=pl.lit(name)), made.by)
    store.discard(saved)


def _report(curves: Sequence[pl.DataFrame], label: str, about: str, timed: bool, price: float, out: Path) -> Report:
    cost = pl.col("runtime") + price * pl.col("total_worker_time")
    summary = pl.concat((curve.tail(1) for curve in curves), how="diagonal_relaxed")
    summary = summary.select("policy", pl.exclude(_COUNTS), **({"cost": cost} if price else {}))
    titles = [name.removeprefix("total_").replace("_", " ") for name in summary.columns[1:]]
    rows = [(str(policy), *(f"{figure:.4g}" for figure in figures)) for policy, *figures in summary.iter_rows()]
    title = f"{about}\ntimes in seconds, as measured in this run" if timed else about
    table = Table(title, {"policy": LEFT, **right(titles)}, rows)
    files = write(out, {"table.md": markdown([table]), "table.csv": summary})
    lines = pl.concat(curve.select("policy", *_RECORDED) for curve in curves)
    pictures = draw(lines, lines.head(0), label, about + ", times in seconds" * timed, out / "plots" / "loss")
    return Report(summary, [table], files, pictures)
