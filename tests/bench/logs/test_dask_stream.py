"""Dask's task streams, in the forms in which people save them."""

import json
from functools import partial

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.logs import read_log
from ata_gym.bench.logs.task_streams import dask_stream
from tests.mutated import mutations, read_or_refused

START = 1_795_000_000.0
"""A time in 2026, in seconds since 1970."""
WORKERS = ("tcp://10.0.0.1:40001", "tcp://10.0.0.2:40001")


def task(key, worker, start, seconds, thread=1, transfer=0.0, **others):
    """A task as ``get_task_stream`` has it, with the bytes as ``default=str`` writes them."""
    actions = []
    start += START
    if transfer:
        actions.append(
            {"action": "transfer", "start": start - transfer, "stop": start, "source": WORKERS[0]},
        )
    actions.append({"action": "compute", "start": start, "stop": start + seconds})
    return {
        "stimulus_id": f"task-finished-{start}",
        "worker": WORKERS[worker],
        "metadata": {},
        "nbytes": 24,
        "type": r"b'\x80\x05\x95\x15\x00, \"float\"'",
        "typename": "float",
        "thread": thread,
        "startstops": actions,
        "status": "OK",
        "key": key,
        **others,
    }


TIMES = np.random.default_rng(0).gamma(50.0, 0.001, (20, 2)) * [1.0, 2.0]


def rounds(times=TIMES):
    now = 0.0
    tasks = []
    for row in times.tolist():
        for worker, seconds in enumerate(row):
            key = f"fit-{worker}217ddc70-60e7-4f27-bf44-c58138562db{worker}"
            tasks.append(task(key, worker, now, seconds, transfer=0.002))
        now += max(row) + 0.01
    return tasks


def as_json(path, tasks):
    path.write_text(json.dumps(tasks))


def as_lines(path, tasks):
    path.write_text("\n".join(map(json.dumps, tasks)))


def as_csv(path, tasks):
    """As pandas writes it: what is no number or text, as Python does."""
    rows = [one | {"startstops": str(tuple(one["startstops"])), "metadata": "{}"} for one in tasks]
    pl.DataFrame(rows).write_csv(path)


def as_parquet(path, tasks):
    pl.DataFrame(
        [{k: v for k, v in one.items() if k != "metadata"} for one in tasks]
    ).write_parquet(
        path,
    )


FORMS = {"s.json": as_json, "s.jsonl": as_lines, "s.csv": as_csv, "s.parquet": as_parquet}


@pytest.mark.parametrize("name", FORMS)
def test_computation_counts_and_transfers_do_not(tmp_path, name):
    path = tmp_path / name
    FORMS[name](path, rounds())
    log = read_log(path)
    assert log.workers == [*WORKERS]
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-6)
    assert any("transfers and the disk are left out" in remark for remark in log.remarks)
    assert any("the 20 steps begin where all tasks before had ended" in one for one in log.remarks)


def test_threads_of_a_worker_are_workers(tmp_path):
    path = tmp_path / "stream.json"
    tasks = []
    for k in range(4):
        tasks += [task(f"fit-{k}", 0, k, 0.3, thread) for thread in (7, 8)]
        tasks += [task(f"fit-{k}", 1, k, 0.5, 7)]
    as_json(path, tasks)
    log = read_log(path)
    assert log.workers == [
        f"{WORKERS[0]} thread 7",
        f"{WORKERS[0]} thread 8",
        f"{WORKERS[1]} thread 7",
    ]
    np.testing.assert_allclose(log.seconds, [[0.3, 0.3, 0.5]] * 4, atol=1e-6)


def test_tasks_of_several_names_need_a_choice_and_failed_ones_are_left_out(tmp_path):
    path = tmp_path / "stream.json"
    tasks = rounds()
    # a tuple as a key, with the place of a block
    tasks += [task(["random_sample-5a5b5c5d", 0, k], 0, -10 - k, 0.5) for k in range(3)]
    failed = task("other-1234abcd", 0, -20, 0.5, status="error")
    as_json(path, [failed, *tasks])
    with pytest.raises(ValueError, match=r"2 names, 'fit', 'random_sample': .*--where name=fit"):
        read_log(path)
    log = read_log(path, where={"name": ["fit"]})
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-6)
    assert "1 of 44 tasks failed, and are left out." in log.remarks


def test_a_graph_that_runs_without_pauses_has_no_rounds(tmp_path):
    path = tmp_path / "stream.json"
    tasks = [
        task(f"fit-{k}", worker, k * seconds, 0.99 * seconds)
        for worker, seconds in enumerate((0.1, 0.17))
        for k in range(20)
    ]
    as_json(path, tasks)
    with pytest.raises(
        ValueError, match=r"in no rounds of all 2 workers: .*: record a row for each"
    ):
        read_log(path)


def test_a_report_says_what_to_save_instead(tmp_path):
    path = tmp_path / "dask-report.html"
    path.write_text("<!DOCTYPE html><html><head><title>Dask Performance Report</title></head>")
    with pytest.raises(ValueError, match=r"save the task stream itself, with json.dump"):
        read_log(path)


def test_actions_that_are_written_otherwise_are_not_left_out_in_silence(tmp_path):
    path = tmp_path / "stream.csv"
    as_csv(path, rounds())
    path.write_text(path.read_text().replace("'stop': 17", "'stop': about 17", 1))
    with pytest.raises(ValueError, match=r"the startstops of row 1 are not as Dask and pandas"):
        read_log(path)


def test_a_stream_without_computation_is_refused(tmp_path):
    path = tmp_path / "stream.json"
    as_json(path, [one | {"startstops": []} for one in rounds()])
    with pytest.raises(ValueError, match="holds no computation"):
        read_log(path)


def test_damaged_fields_are_refused_in_a_sentence(tmp_path):
    tasks = rounds(TIMES[:3])
    path = tmp_path / "stream.json"
    for one in mutations({"tasks": tasks}):
        as_json(path, one.document.get("tasks"))
        log = read_or_refused(path, partial(read_log, path))
        assert log is None or np.isfinite(log.seconds).all()


@pytest.mark.parametrize("name", FORMS)
def test_half_a_file_is_refused_in_a_sentence(tmp_path, name):
    path = tmp_path / name
    FORMS[name](path, rounds())
    content = path.read_bytes()
    for kept in (0.05, 0.3, 0.7, 0.99):
        path.write_bytes(content[: int(kept * len(content))])
        log = read_or_refused(path, partial(read_log, path))
        # a text may end at the end of a row
        if log is not None:
            np.testing.assert_allclose(log.seconds, TIMES[: len(log.seconds)], atol=1e-6)


def test_other_files_are_not_taken_for_a_stream(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("worker,step,seconds\na,1,2\nstartstops,1,2\n")
    assert not dask_stream.FORMAT.recognises(path)
    path = tmp_path / "rows.parquet"
    pl.DataFrame({"worker": ["a"], "seconds": [1.0]}).write_parquet(path)
    assert not dask_stream.FORMAT.recognises(path)
    path.write_bytes(b"PAR1 and no more")
    assert not dask_stream.FORMAT.recognises(path)
    assert not dask_stream.FORMAT.recognises(tmp_path)
