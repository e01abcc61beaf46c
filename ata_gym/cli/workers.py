"""The command that records the task times of real devices as a trace."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer

from ata_gym.bench.progress import progress_bars
from ata_gym.cli import options
from ata_gym.cli.console import say, say_error, show
from ata_gym.typing import Floats
from ata_gym.utils.atomic import check_place, write_whole
from ata_gym.utils.errors import named_failure
from ata_gym.utils.extras import require
from ata_gym.utils.validation import whole_number

if TYPE_CHECKING:
    from ata_gym.training.devices.workers import Worker

_DECIMALS = 7  # decimals of the seconds in a CSV file


def measure(
    workers: Annotated[
        str, typer.Option(help='Separated by commas: DEVICE or DEVICE:WORK, such as "cpu:1,cpu:3" or "cuda:0:2".')
    ],
    out: Annotated[Path, typer.Option(help="The trace to write: .parquet or .csv.")],
    problem: options.ProblemName = "digits",
    data: options.ProblemData = None,
    tasks: Annotated[int, typer.Option(help="The number of tasks that each worker computes.")] = 200,
    micro_batch: Annotated[int, typer.Option(help="Samples in each task.")] = 1,
    precision: Annotated[str, typer.Option(help="float32, or mixed with bfloat16 or float16.")] = "float32",
    seed: Annotated[int, typer.Option(help="The seed of the weights and the gradients.")] = 0,
) -> None:
    r"""Measure the task times of real devices, as a trace.

    A pool can replay the trace. A task is one stochastic gradient; a worker of DEVICE:WORK really computes each WORK
    times, so that some are slower. The workers take turns, task by task, so that load on the machine slows all of them
    alike; workers that name the same GPU each have it to themselves. The data of a task is on its device before its
    time begins.

    One sample of a small model on a GPU measures how fast work is launched, and little else: give --micro-batch and
    --precision as they are in your training.

    ```
    ata-gym measure --workers "cpu:1,cpu:2,cpu:4" --out trace.csv
    ata-gym measure --problem digits --workers "cuda:0,cuda:1,cpu" \
        --micro-batch 256 --precision bfloat16 --out gpus.csv
    ```
    """
    require("torch", extra="train", purpose="The command measure")
    import polars as pl  # noqa: PLC0415 - these imports take seconds

    from ata_gym.bench.experiment.experiment import plural  # noqa: PLC0415
    from ata_gym.training.devices.workers import find_workers, measure_times  # noqa: PLC0415
    from ata_gym.training.problem import make_problem  # noqa: PLC0415
    from ata_gym.training.trainer.trainer import Trainer  # noqa: PLC0415

    if out.suffix not in (".parquet", ".csv"):
        raise ValueError(f"the trace's name must end in .parquet or .csv, not {out.name!r}")
    whole_number("tasks", tasks, 2)
    listed = find_workers(workers)
    check_place(out)
    total = len(listed) * tasks
    try:
        with named_failure(f"the problem {problem}"), progress_bars({problem: total}) as progress:
            trainer = Trainer(make_problem(problem, data), 1, micro_batch=micro_batch, precision=precision, seed=seed)
            times = measure_times(trainer, listed, tasks, lambda done: progress(problem, done))
    except (FloatingPointError, MemoryError) as error:
        raise ValueError(f"{error}; nothing was written") from error
    except KeyboardInterrupt as error:
        say_error("stopped; nothing was written")
        raise typer.Exit(130) from error
    task, worker = np.divmod(np.arange(total), len(listed))
    frame = pl.DataFrame({"worker": worker, "task": task, "duration": times.T.ravel()})
    if out.suffix == ".csv":
        write_whole(out, lambda part: frame.write_csv(part, float_precision=_DECIMALS))
    else:
        write_whole(out, frame.write_parquet)
    _show(listed, times)
    size = f"{total:,} tasks of {plural(micro_batch, 'sample')} in {precision}"
    say(f"{out}: {plural(len(listed), 'worker')}, {size}; to let policies play on these times:")
    say(
        f"  ata-gym bench --trace {shlex.quote(str(out))} --worker-column worker --duration-column duration "
        f"--budget {len(listed)} --out {shlex.quote(str(Path('results', out.stem)))}"
    )


def _show(workers: Sequence[Worker], times: Floats) -> None:
    """Show the spread of the times, shape (workers, tasks), a row for each worker."""
    from ata_gym.bench.report.table import LEFT, RIGHT, Table, right  # noqa: PLC0415 - the bench takes a second

    rows = []
    for i, (worker, row) in enumerate(zip(workers, times, strict=True)):
        mean, sd = row.mean(), row.std(ddof=1)
        figures = (f"{1e3 * mean:.3f}", f"{1e3 * sd:.3f}", f"{sd / mean:.3f}")
        rows.append((str(i), worker.device, str(worker.work), *figures))
    numbers = right(("work", "mean (ms)", "sd (ms)", "CV"))
    show(Table("", {"worker": RIGHT, "device": LEFT, **numbers}, rows))
