"""``ata-gym measure``: real task times of real workers, as a trace."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import numpy as np
import typer
from rich import box
from rich.table import Table

from ata_gym.checks import whole_number
from ata_gym.cli.console import progress_bars, say, say_error, show
from ata_gym.cli.training import Data, ProblemName
from ata_gym.extras import require
from ata_gym.files import write_whole
from ata_gym.simulation import Floats

if TYPE_CHECKING:
    from ata_gym.training.workers import Worker

_DECIMALS = 7
"""Of the seconds in a CSV file."""


def measure(
    workers: Annotated[
        str, typer.Option(help='Separated by commas: DEVICE or DEVICE:WORK, such as "cpu:1,cpu:3" or "cuda:0:2".')
    ],
    out: Annotated[Path, typer.Option(help="The trace to write: .parquet or .csv.")],
    problem: ProblemName = "digits",
    data: Data = None,
    tasks: Annotated[int, typer.Option(help="Tasks of each worker.")] = 200,
    seed: Annotated[int, typer.Option(help="Of the weights and the gradients.")] = 0,
) -> None:
    """Run tasks of a problem on real devices, and keep their times as a trace that a pool can replay.

    A task is one stochastic gradient; a worker of DEVICE:WORK really computes each WORK times, so that some are slower.
    The workers take turns, task by task, so that what slows the machine down for a while slows all alike.

    ```
    ata-gym measure --problem digits --workers "cpu:1,cpu:2,cpu:4" --out trace.csv
    ```
    """
    require("torch", extra="train", purpose="The command measure")
    import polars as pl  # noqa: PLC0415 - these imports take seconds

    from ata_gym.training.measuring import measure_times  # noqa: PLC0415
    from ata_gym.training.problems import make_problem  # noqa: PLC0415
    from ata_gym.training.trainer import Trainer  # noqa: PLC0415
    from ata_gym.training.workers import find_workers  # noqa: PLC0415

    if out.suffix not in (".parquet", ".csv"):
        raise ValueError(f"the trace's name must end in .parquet or .csv, not {out.name!r}")
    if out.is_dir():
        raise ValueError(f"{out} is a folder: choose another name")
    whole_number("tasks", tasks, 2)
    listed = find_workers(workers)
    total = len(listed) * tasks
    try:
        with progress_bars({problem: total}) as progress:
            trainer = Trainer(make_problem(problem, data), 1, seed=seed)
            times = measure_times(trainer, listed, tasks, lambda done: progress(problem, done))
    except (FloatingPointError, MemoryError) as error:
        raise ValueError(f"{error}; nothing was written") from error
    except KeyboardInterrupt as error:
        say_error("stopped; nothing was written")
        raise typer.Exit(130) from error
    task, worker = np.divmod(np.arange(total), len(listed))
    frame = pl.DataFrame({"worker": worker, "task": task, "duration": times.T.ravel()})
    out.parent.mkdir(parents=True, exist_ok=True)
    if out.suffix == ".csv":
        write_whole(out, lambda part: frame.write_csv(part, float_precision=_DECIMALS))
    else:
        write_whole(out, frame.write_parquet)
    show(_table(listed, times))
    say(f"{out}: {len(listed)} workers, {total:,} tasks; to let policies play on these times:")
    say(
        f"  ata-gym bench --trace {shlex.quote(str(out))} --worker-column worker --duration-column duration "
        f"--budget {len(listed)} --out {shlex.quote(str(Path('results', out.stem)))}"
    )


def _table(workers: Sequence[Worker], times: Floats) -> Table:
    from ata_gym.training.measuring import autocorrelation  # noqa: PLC0415

    table = Table(box=box.SIMPLE_HEAD)
    for title in ("worker", "device", "work", "mean (ms)", "sd (ms)", "CV", "autocorrelation"):
        table.add_column(title, justify="left" if title == "device" else "right", no_wrap=True)
    means, sds = times.mean(1), times.std(1, ddof=1)
    for i, (worker, mean, sd, correlation) in enumerate(zip(workers, means, sds, autocorrelation(times), strict=True)):
        figures = (f"{1e3 * mean:.3f}", f"{1e3 * sd:.3f}", f"{sd / mean:.3f}", f"{correlation:.2f}")
        table.add_row(str(i), worker.device, str(worker.work), *figures)
    return table
