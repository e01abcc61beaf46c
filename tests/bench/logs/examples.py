"""A small log of each format and its truth, and a file of each kind that is refused.

A format joins by a function in ``READ``, and a refused kind by one in ``REFUSED``, under its name.
"""

import json
import pickle
import sqlite3
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from ata_gym.typing import Floats

RANKS = 3
STEPS = 12
SLOWEST = 1


def times() -> Floats:
    """(steps, ranks) seconds before the wait; rank 1 is the slowest in every step."""
    seconds = np.random.default_rng(7).uniform(0.10, 0.11, (STEPS, RANKS))
    seconds[:, SLOWEST] *= 1.5
    # whole microseconds, as traces have them
    return np.round(seconds, 6)


def table(folder: Path) -> Path:
    """A CSV with a row for each rank and step."""
    step, rank = np.divmod(np.arange(STEPS * RANKS), RANKS)
    path = folder / "times.csv"
    pl.DataFrame({"rank": rank, "step": step, "seconds": times().ravel()}).write_csv(path)
    return path


def profiler(folder: Path) -> Path:
    """A trace of each rank in the shape of torch.profiler's: work, then one collective."""
    seconds = 1e6 * times()
    ends = seconds.max(axis=1) + 5_000.0
    begins = np.concatenate([[0.0], np.cumsum(ends)[:-1]])
    for rank in range(RANKS):
        events = []
        for step in range(STEPS):
            begin = float(begins[step])
            arrival = begin + float(seconds[step, rank])
            end = begin + float(ends[step])
            spans = {
                f"ProfilerStep#{step}": ("user_annotation", begin, end),
                "aten::mm": ("cpu_op", begin, arrival),
                "gloo:all_reduce": ("user_annotation", arrival, end),
            }
            for name, (category, start, stop) in spans.items():
                span = {"ts": start, "dur": stop - start}
                events.append(
                    {"ph": "X", "cat": category, "name": name, "pid": 1, "tid": 1, **span},
                )
        trace = {
            "schemaVersion": 1,
            "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": RANKS},
            "baseTimeNanoseconds": 0,
            "traceEvents": events,
        }
        name = f"host_{rank}.1700000000000000000.pt.trace.json"
        (folder / name).write_text(json.dumps(trace))
    return folder


def tensorboard(folder: Path) -> Path:
    """A run of each rank, by the writer of torch."""
    pytest.importorskip("tensorboard")
    writers = pytest.importorskip("torch.utils.tensorboard")
    for rank in range(RANKS):
        with writers.SummaryWriter(folder / f"rank{rank}") as writer:
            for step in range(STEPS):
                writer.add_scalar("time/step_seconds", times()[step, rank], step)
                writer.add_scalar("train/loss", 1.0, step)
    return folder


def traceml(folder: Path) -> Path:
    """The folder of a run, in the shape of traceml-ai 0.5."""
    rows = []
    wholes = times().max(axis=1) + 0.02
    for step in range(STEPS):
        for rank in range(RANKS):
            whole = 1e3 * wholes[step]
            loading = 7.0
            events = {
                "dataloader_next": loading,
                "forward_time": 1e3 * times()[step, rank] - loading - 2.0,
                "backward_time": whole - 1e3 * times()[step, rank],
                "optimizer_step": 1.5,
                "step_time": whole - loading,
            }
            rows.append((rank, step + 1, traceml_events(events)))
    (folder / "aggregator").mkdir()
    write_traceml(folder / "aggregator" / "telemetry", rows)
    return folder


def traceml_events(milliseconds: dict[str, float], **fields: Any) -> str:
    """The entry events_json of a step on a processor."""
    stats = {"is_gpu": False, "gpu_ms": None, "n_calls": 1, **fields}
    return json.dumps(
        {
            f"_traceml_internal:{name}": {"cpu": {"cpu_ms": time, "duration_ms": time, **stats}}
            for name, time in milliseconds.items()
        },
    )


def write_traceml(path: Path, rows: list[tuple[Any, Any, Any]], world_size: int = RANKS) -> None:
    """A database with steps: the rank, the step, and the events of each."""
    with closing(sqlite3.connect(path)) as database:
        database.execute("PRAGMA journal_mode=WAL")
        database.execute(
            "CREATE TABLE step_time_samples (id INTEGER PRIMARY KEY AUTOINCREMENT, recv_ts_ns"
            " INTEGER, rank INTEGER, global_rank INTEGER, world_size INTEGER, hostname TEXT,"
            " sample_ts_s REAL, seq INTEGER, step INTEGER, events_json TEXT NOT NULL)",
        )
        database.executemany(
            "INSERT INTO step_time_samples (rank, global_rank, world_size, step, events_json)"
            " VALUES (?, ?, ?, ?, ?)",
            [(rank, rank, world_size, step, events) for rank, step, events in rows],
        )
        database.commit()


def megatron(folder: Path) -> Path:
    """The text that the last rank prints, with the times of all ranks."""
    milliseconds = 1e3 * times()
    text = "using world size: 3, data-parallel size: 3\n"
    for step in range(STEPS):
        text += (
            f" [2025-01-01 00:00:{step:02d}] iteration {step + 1:8d}/{STEPS:8d} | consumed samples:"
            "           96 | elapsed time per iteration (ms): 200.0 | learning rate: 1.0E-04 |\n"
            "times across ranks (ms):\n"
        )
        timers = {"forward-backward": 0.0 * milliseconds + 200.0}
        timers["forward-compute"] = 0.25 * milliseconds
        timers["backward-compute"] = 0.75 * milliseconds
        timers["batch-generator"] = 0.01 * milliseconds
        for name, by_rank in timers.items():
            text += f"  {name}:\n"
            for rank in range(RANKS):
                text += f"     rank {rank:2d}: {by_rank[step, rank]:.6f}\n"
    path = folder / "train.log"
    path.write_text(text)
    return path


def flight_recorder(folder: Path) -> Path:
    """A dump of each rank, in the shape of PyTorch 2.13 with NCCL: one collective a step."""
    # the first one ends what was before the first step
    ends = np.cumsum([0.5, *(times().max(axis=1) + 0.005)])
    arrivals = np.vstack([np.full(RANKS, 0.4), ends[:-1, None] + times()])
    for rank in range(RANKS):
        entries = [
            {
                "record_id": number,
                "process_group": ["0", "default_pg"],
                "collective_seq_id": number + 1,
                "profiling_name": "nccl:all_reduce",
                "time_created_ns": 1_795 * 10**15 + round(1e9 * arrivals[number, rank]),
                "time_discovered_completed_ns": 1_795 * 10**15 + round(1e9 * ends[number]),
                "input_sizes": [[1024]],
                "is_p2p": False,
            }
            for number in range(STEPS + 1)
        ]
        groups = {"0": {"name": "0", "desc": "default_pg", "ranks": str([*range(RANKS)])}}
        dump = {"entries": entries, "pg_config": groups, "version": "2.10"}
        (folder / f"rank_{rank}.json").write_text(json.dumps(dump))
    return folder


def ray_timeline(folder: Path) -> Path:
    """A timeline of Ray 2.60: a task of each worker in each round."""
    events = []
    begins = 1e6 * np.cumsum([0.0, *(times().max(axis=1) + 0.01)])
    for step, rank in np.ndindex(times().shape):
        run = {"ph": "X", "pid": "10.0.0.1", "tid": f"worker:{rank}", "args": {}}
        run |= {"ts": begins[step], "dur": 1e6 * times()[step, rank]}
        events.append(run | {"cat": "task:execute", "name": "task:execute"})
        events.append(run | {"cat": "task::fit", "name": "fit", "dur": run["dur"] + 100.0})
    path = folder / "timeline.json"
    path.write_text(json.dumps(events))
    return path


def dask_stream(folder: Path) -> Path:
    """The task stream of distributed 2026.8: a task of each worker in each round.

    Its times begin at 0, since those since 1970 have a quarter of a microsecond.
    """
    begins = np.cumsum([0.0, *(times().max(axis=1) + 0.01)])
    tasks = [
        {
            "worker": f"tcp://10.0.0.1:{rank}",
            "startstops": [
                {
                    "action": "compute",
                    "start": begins[step],
                    "stop": begins[step] + times()[step, rank],
                },
            ],
            "thread": 1,
            "status": "OK",
            "key": f"fit-217ddc70-60e7-4f27-bf44-c58138562d{step:x}{rank}",
        }
        for step, rank in np.ndindex(times().shape)
    ]
    path = folder / "stream.json"
    path.write_text(json.dumps(tasks))
    return path


READ: dict[str, Callable[[Path], Path]] = {
    "table": table,
    "PyTorch profiler traces": profiler,
    "PyTorch Flight Recorder": flight_recorder,
    "Ray timeline": ray_timeline,
    "Dask task stream": dask_stream,
    "TensorBoard": tensorboard,
    "TraceML telemetry": traceml,
    "Megatron-LM's text with --timing-log-option all": megatron,
}
"""Writes a log of ``times()`` into an empty folder, and returns what is to be read."""


def text(name: str, content: str) -> Callable[[Path], Path]:
    """Writes a text under a name."""

    def write(folder: Path) -> Path:
        (folder / name).write_text(content, encoding="utf-8")
        return folder / name

    return write


def binary(name: str, content: bytes) -> Callable[[Path], Path]:
    """Writes bytes under a name."""

    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder / name

    return write


def chakra(folder: Path) -> Path:
    """An execution trace, by torch if it is installed."""
    path = folder / "et_0.json"
    try:
        import torch
    except ImportError:
        return text(
            path.name,
            '{"schema": "1.1.1-chakra.0.0.4", "pid": 1, "nodes": [{"id": 1, "name": "aten::mm",'
            ' "ctrl_deps": 0}, {"id": 2, "name": "aten::mm", "ctrl_deps": 1}]}',
        )(folder)
    observer = torch.profiler.ExecutionTraceObserver()
    observer.register_callback(str(path))
    observer.start()
    torch.ones(2) + torch.ones(2)
    observer.stop()
    observer.unregister_callback()
    return path


def nsight(folder: Path) -> Path:
    """What ``nsys export --type sqlite`` writes, in part."""
    with closing(sqlite3.connect(folder / "report.sqlite")) as database:
        for name in ("StringIds", "CUPTI_ACTIVITY_KIND_KERNEL", "TARGET_INFO_SYSTEM_ENV"):
            database.execute(f"CREATE TABLE {name} (id INTEGER)")
    return folder / "report.sqlite"


def archive(folder: Path) -> Path:
    with zipfile.ZipFile(folder / "traces.zip", "w") as file:
        file.writestr("rank0.json", "{}")
    return folder / "traces.zip"


REFUSED: dict[str, list[Callable[[Path], Path]]] = {
    "Lightning's metrics.csv": [
        text("metrics.csv", "epoch,lr,step,train_loss\n0,0.1,49,2.3\n0,0.1,99,2.1\n"),
        text("metrics.csv", "epoch,step,train_loss_step,val_acc\n0,49,2.3,\n0,49,,0.5\n"),
    ],
    "the text of Megatron-LM": [
        text(
            "train.log",
            "setting random seeds to 1234 ...\n [2025-01-01 00:00:00] iteration       10/     100"
            " | consumed samples:          320 | elapsed time per iteration (ms): 123.4 | lm loss:"
            " 1.0E+01 |\n",
        ),
        text(
            "train.log",
            " iteration       20/     100 | elapsed time per iteration (ms): 123.4 |\n(min, max)"
            " time across ranks (ms):\n    forward-backward ....: (100.1, 123.4)\n",
        ),
    ],
    "the text of DeepSpeed": [
        text(
            "log.txt",
            "[2025-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] step=10, skipped=0,"
            " lr=[0.0001], mom=[(0.9, 0.999)]\n",
        ),
        text(
            "log.txt",
            "[2025-01-01 00:00:00,000] [INFO] [logging.py:96:log_dist] [Rank 0] time (ms) |"
            " fwd_microstep: 67.68 | bwd_microstep: 179.36 | step_microstep: 11.27\n",
        ),
    ],
    "an MLPerf log": [
        text(
            "result_0.txt",
            ':::MLLOG {"namespace": "", "time_ms": 1700000000000, "event_type": "INTERVAL_START",'
            ' "key": "block_start", "value": null, "metadata": {"file": "a.py", "lineno": 1}}\n',
        ),
    ],
    "the accounting of Slurm (sacct)": [
        text(
            "sacct.txt",
            "JobID           JobName  Partition      State    Elapsed\n------------ ----------"
            " ---------- ---------- ----------\n1234              train        gpu  COMPLETED  "
            " 01:02:03\n",
        ),
        text("sacct.csv", "JobID|JobName|State|Elapsed\n1234|train|COMPLETED|01:02:03\n"),
    ],
    "a table of nvidia-smi": [
        text(
            "gpu.csv",
            "timestamp, name, utilization.gpu [%], utilization.memory [%]\n2025/01/01 00:00:00.000,"
            " NVIDIA H100, 97 %, 41 %\n",
        ),
    ],
    "trainer_state.json of transformers": [
        text(
            "trainer_state.json",
            '{"epoch": 1.0, "global_step": 20, "log_history": [{"epoch": 0.5, "loss": 2.0, "step":'
            ' 10}, {"epoch": 1.0, "loss": 1.9, "step": 20}], "max_steps": 20}',
        ),
    ],
    "a Chakra host trace (execution trace)": [chakra],
    "a profile of speedscope (py-spy)": [
        text(
            "profile.json",
            '{"$schema": "https://www.speedscope.app/file-format-schema.json", "profiles": [],'
            ' "shared": {"frames": [{"name": "f"}, {"name": "g"}]}}',
        ),
    ],
    "a file of settings": [
        text("config.json", '{"architectures": ["Model"], "model_type": "llama", "rope": [1, 2]}'),
        text("ds_config.json", '{"train_batch_size": 8, "zero_optimization": {"stage": 2}}'),
    ],
    "a report of Nsight": [binary("report.nsys-rep", b"\x01\x02\x00\xff"), nsight],
    "a pickle of Python (a memory snapshot)": [
        binary("snapshot.pickle", pickle.dumps({"segments": [], "device_traces": [[]]})),
        binary("state", pickle.dumps({"entries": []}, protocol=2)),
    ],
    "a trace of Perfetto": [binary("trace.pftrace", b"\x0a\x0f\x52\x0d\x00\x01")],
    "a profile of XLA (xplane.pb)": [binary("host.xplane.pb", b"\x0a\x05/host")],
    "the record of a run of W&B (.wandb)": [binary("run-1.wandb", b":W&B\xd4\xbe\x00")],
    "an archive": [archive],
}
"""Each writes a file of the kind into an empty folder, and returns it."""
