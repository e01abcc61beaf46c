"""The study of emulated workers: each policy trains the same model in real processes, and a report is left."""

import json
import os
import pickle
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from time import sleep
from typing import Any

import numpy as np
import polars as pl

from ata_gym.bench.experiment.provenance import merged, provenance
from ata_gym.bench.experiment.store import Made, check_code, open_folder, read_frame, write_frame
from ata_gym.bench.progress import progress_bars
from ata_gym.bench.report import style
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.cluster.studies.emulation import Emulation, Training
from ata_gym.cluster.studies.rank import samples_of
from ata_gym.training.studies.trajectory import made_by_problem
from ata_gym.typing import Floats
from ata_policies import Allocator

SCHEMA: dict[str, Any] = {
    "policy": pl.String,
    "round": pl.Int64,
    "seconds": pl.Float64,  # from the end of the round before, on the clock of the first rank
    "communication": pl.Float64,
    "loss": pl.Float64,
    "tasks": pl.List(pl.Int64),  # of each worker
    "busy": pl.List(pl.Float64),
}
"""The columns of what is recorded, a row for each round."""

_ENDS_WITHIN = 45.0  # Seconds; torchrun gives its ranks 30 to end, and kills them then

ALONE = "one process"  # in the place of a policy: the same training without a cluster
SETTLED = 100  # rounds after which a policy is measured, or half of all if these are fewer than 200
_NEAR = 1.1  # a policy has followed a change when rounds take at most this times the least time, in the median of five
_FIVE = 5


def run(
    emulation: Emulation, policies: Sequence[str], training: Training, out: Path, rerun_changed: bool = False
) -> Report:
    """Train with each policy and with one process alone, where that was not done before, with progress bars.

    ValueError for a policy that cannot play, a problem without labelled samples, or a folder of another configuration;
    ChildProcessError if a process of a cluster fails.
    """
    budget, seed = emulation.budget, training.seed
    for policy in policies:
        Allocator(len(emulation.times), budget, policy, seed=seed)
    samples_of(training)
    config = {"study": "emulated", **asdict(emulation), "problem": training.problem, "seed": seed}
    folder, names = open_folder(out, config), (*policies, ALONE)
    problem = made_by_problem(training.problem, __name__)
    made_by = {name: merged(provenance("uta" if name == ALONE else name, __name__), problem) for name in names}
    check_code([Made(name, (folder.result(name),), by) for name, by in made_by.items()], rerun_changed)
    todo = [name for name in names if not folder.finished(name)]
    with progress_bars(dict.fromkeys(names, emulation.rounds)) as update:
        for name in names:
            update(name, 0 if name in todo else emulation.rounds)

        def keep(name: str, frame: pl.DataFrame) -> None:
            write_frame(folder.result(name), frame, made_by[name])

        for together in ([name for name in todo if name != ALONE], [ALONE] if ALONE in todo else []):
            if together:
                _play(emulation, together, training, update, keep)
    records = {name: read_frame(folder.result(name)) for name in names}
    times = ", ".join(f"{1000 * time:.3g}" for time in emulation.times)
    about = f"{training.problem}, B = {budget}, task times of {times} ms emulated by {len(emulation.times)} processes"
    return report(emulation, records, about, out)


def _play(
    emulation: Emulation, policies: Sequence[str], training: Training,
    progress: Callable[[str, int], None], keep: Callable[[str, pl.DataFrame], None],
) -> None:  # fmt: skip
    """Train with policies one after the other in the same processes, or with ``ALONE``; keep the frame of each.

    ChildProcessError if a process fails.
    """
    alone = policies[0] == ALONE
    size = 1 if alone else len(emulation.times)
    with tempfile.TemporaryDirectory() as folder:
        playing = {policy: Path(folder, f"{place}.jsonl") for place, policy in enumerate(policies)}
        works, errors = Path(folder, "works.pickle"), Path(folder, "errors.txt")
        todo = [(out, emulation, "uta" if alone else policy, training, not alone) for policy, out in playing.items()]
        works.write_bytes(pickle.dumps(todo))
        torchrun = f"-m torch.distributed.run --standalone --nproc-per-node={size} -m ata_gym.cluster.studies.rank"
        command, environment = [sys.executable, *torchrun.split(), str(works)], os.environ | {"OMP_NUM_THREADS": "1"}

        def look() -> None:
            """Report the progress, and keep what is complete."""
            for policy, out in list(playing.items()):
                lines = out.read_text("utf-8").splitlines(keepends=True) if out.exists() else []
                done = sum(line.endswith("\n") for line in lines)
                progress(policy, done)
                if done == emulation.rounds:
                    rows = [json.loads(line) for line in lines]
                    keep(policy, pl.DataFrame([row | {"policy": policy} for row in rows], schema=SCHEMA))
                    del playing[policy]

        with errors.open("w+", encoding="utf-8") as stderr:
            process = subprocess.Popen(command, env=environment, stdout=stderr, stderr=stderr, start_new_session=True)
            try:
                while process.poll() is None:
                    sleep(0.2)
                    look()
            finally:
                _end(process)
            look()
            if process.returncode:
                raise ChildProcessError(f"a process of the emulated cluster failed: {_reason(errors)}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End torchrun, which ends its ranks: they have sessions of their own, and would outlive it if it were killed."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(_ENDS_WITHIN)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def _reason(errors: Path) -> str:
    """The last line in which a rank says what went wrong."""
    lines = [line.strip() for line in errors.read_text("utf-8").splitlines()]
    messages = [line.partition(": ")[2] if line.startswith("[rank") else line for line in lines if "Error: " in line]
    reasons = [line for line in messages if "ChildFailedError" not in line]
    return [*reasons, *lines[-1:], "it said nothing"][0]


def report(emulation: Emulation, records: Mapping[str, pl.DataFrame], about: str, folder: Path) -> Report:
    """Compare policies with the first of them, and leave a table and a picture in the folder."""
    summary = summarise(emulation, records)
    shown = summary.columns[1:]
    rows = [(row[0], *("" if value is None else f"{value:.3g}" for value in row[1:])) for row in summary.rows()]
    titles = [name.replace("_", " ") for name in shown]
    table = Table(about, {"policy": LEFT, **right(titles)}, rows)
    files = write(folder, {"table.md": markdown([table]), "table.csv": summary})
    pictures = _draw(emulation, {name: one for name, one in records.items() if name != ALONE}, about, folder)
    return Report(summary, [table], files, pictures)


def summarise(emulation: Emulation, records: Mapping[str, pl.DataFrame]) -> pl.DataFrame:
    """A row for each policy.

    ``ms_per_round`` is the median after ``SETTLED`` rounds, before anything happens; ``over_least`` its ratio to the
    time of the best split; ``loss_differs`` the largest relative difference from the losses of one process.
    """
    alone = records.get(ALONE)
    rows, first = [], 0.0
    for policy, frame in records.items():
        if policy == ALONE:
            continue
        seconds, settled = frame["seconds"].to_numpy(), _settled(emulation)
        usual = float(np.median(seconds[settled]))
        first = first or usual
        differs = None
        if alone is not None:
            ours, theirs = frame["loss"].to_numpy(), alone["loss"].to_numpy()
            differs = float(np.max(np.abs(ours / theirs - 1.0)))
        rows.append(
            {
                "policy": policy,
                "ms_per_round": 1000 * usual,
                "times_as_fast": first / usual,
                "over_least": usual / emulation.least(1),
                "rounds_to_follow": _followed(emulation, seconds),
                "loss_differs": differs,
            }
        )
    found = pl.DataFrame(rows, infer_schema_length=None)
    return found.select(column for column in found if column.null_count() < len(rows))


def _settled(emulation: Emulation) -> slice:
    events = [emulation.change_at, *(event and event[0] for event in (emulation.stall, emulation.away))]
    end = min([emulation.rounds, *(event - 1 for event in events if event)])
    return slice(min(SETTLED, end // 2), end)


def _followed(emulation: Emulation, seconds: Floats) -> float | None:
    """Rounds from a change of speeds on until rounds are short again; None if that did not happen."""
    if emulation.change_at is None:
        return None
    least = emulation.least(emulation.change_at)
    after = seconds[emulation.change_at - 1 :]
    for start in range(len(after) - _FIVE + 1):
        if np.median(after[start : start + _FIVE]) <= _NEAR * least:
            return float(start)
    return None


def _draw(emulation: Emulation, records: Mapping[str, pl.DataFrame], title: str, folder: Path) -> list[Path]:
    """For each policy the tasks of each worker, and how long rounds are."""
    least = [emulation.least(number) for number in range(1, emulation.rounds + 1)]
    usual = [np.quantile(frame["seconds"].to_numpy(), 0.95) for frame in records.values()]  # the first rounds compile
    highest = 1.25 * max([*usual, *least])
    with style.figure(1.4 + 2.6 * len(records), 4.6) as picture:
        grid = picture.subplots(2, len(records), sharex=True, sharey="row", squeeze=False)
        for (policy, frame), (above, below) in zip(records.items(), grid.T, strict=True):
            rounds, tasks = frame["round"].to_numpy(), np.array(frame["tasks"].to_list()).T
            labels = [f"worker {place}: {1000 * time:.3g} ms" for place, time in enumerate(emulation.times)]
            above.stackplot(rounds, tasks, labels=labels, colors=style.OKABE_ITO, step="mid", linewidth=0)
            above.set(title=policy, xlim=(1, emulation.rounds), ylim=(0, emulation.budget))
            below.plot(rounds, frame["seconds"].to_numpy(), color="#333333", linewidth=0.9, label="a round")
            below.plot(rounds, least, color="#D55E00", linewidth=1.2, linestyle=(0, (4, 2)), label="best split")
            below.set(xlabel="round", **({"yscale": "log"} if emulation.stall else {"ylim": (0, highest)}))
        grid[0, 0].set_ylabel("tasks of each worker")
        grid[1, 0].set_ylabel("seconds")
        grid[0, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        grid[1, -1].legend(loc="upper left", bbox_to_anchor=(1.0, 1.0))
        return style.save(picture, folder / "plots" / "emulated", title)
