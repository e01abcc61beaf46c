"""Ray's timelines: rounds that the times show, in the two forms that Ray writes."""

import gzip
import json
from functools import partial

import numpy as np
import pytest

from ata_gym.bench.logs import read_log
from ata_gym.bench.logs.task_streams import ray_timeline
from tests.mutated import mutations, read_or_refused

START = 1_795_000_000_000_000.0
"""A time in 2026, in microseconds since 1970."""
WORKERS = ("worker:0123456789abcdef", "worker:fedcba9876543210", "driver:01000000ffff")


def event(category, worker, start, seconds, **others):
    """An event as ``ray.timeline`` writes it, from ``start``, in seconds."""
    return {
        "cat": category,
        "name": category,
        "pid": "10.0.0.1",
        "tid": WORKERS[worker],
        "ts": START + 1e6 * start,
        "dur": 1e6 * seconds,
        "ph": "X",
        "cname": "generic_work",
        "args": {},
        **others,
    }


def task(name, worker, start, seconds, fetching=0.0):
    """The events of a task: its function runs for some seconds, after getting its arguments."""
    whole = {"name": f"__main__.{name}", "args": {"task_id": "5d4b"}}
    return [
        event("task:deserialize_arguments", worker, start, fetching),
        event("task:execute", worker, start + fetching, seconds),
        event("task:store_outputs", worker, start + fetching + seconds, 0.001),
        event(f"task::{name}", worker, start, fetching + seconds + 0.001, **whole),
    ]


def rounds(times, name="Trainer.step", fetching=0.0):
    """The events of rounds in which both workers run a task, and the driver waits for both."""
    now = 0.0
    events = []
    for row in times:
        for worker, seconds in enumerate(row):
            events += task(name, worker, now, seconds, fetching)
        events.append(event("submit_task", 2, now, 0.0001))
        now += max(row) + fetching + 0.01
    return events


TIMES = np.random.default_rng(0).gamma(50.0, 0.001, (20, 2)) * [1.0, 2.0]


def written(tmp_path, events):
    path = tmp_path / "timeline.json"
    path.write_text(json.dumps(events))
    return path


def test_a_task_of_each_worker_in_each_round_without_getting_its_arguments(tmp_path):
    path = written(tmp_path, rounds(TIMES, fetching=0.5))
    log = read_log(path)
    assert log.workers == ["10.0.0.1 01234567", "10.0.0.1 fedcba98"]
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-5)
    assert (log.tasks == 1).all()
    assert any("without getting their arguments" in remark for remark in log.remarks)
    assert any("such as ray.get, counts as its work" in remark for remark in log.remarks)
    assert any("the 20 steps begin where all tasks before had ended" in one for one in log.remarks)


def test_a_timeline_may_be_packed(tmp_path):
    path = tmp_path / "timeline.json.gz"
    content = gzip.compress(json.dumps(rounds(TIMES)).encode())
    path.write_bytes(content)
    np.testing.assert_allclose(read_log(path).seconds, TIMES, atol=1e-5)
    path.write_bytes(content[:-100])
    with pytest.raises(ValueError, match=r"cannot be (read|unpacked): Compressed file ended"):
        read_log(path)


def test_a_fast_worker_may_run_two_tasks_in_a_round(tmp_path):
    events = []
    for k in range(5):
        events += task("work", 0, float(k), 0.2) + task("work", 0, k + 0.25, 0.3)
        events += task("work", 1, k + 0.01, 0.7)
    log = read_log(written(tmp_path, events))
    np.testing.assert_allclose(log.seconds, [[0.5, 0.7]] * 5, atol=1e-5)
    assert (log.tasks == [2, 1]).all()


def test_waiting_within_a_task_is_left_out_where_ray_records_it(tmp_path):
    events = rounds(TIMES)
    now = 0.0
    for row in TIMES:
        events.append(event("ray.get", 0, now + 0.001, 0.01))
        now += max(row) + 0.01
    log = read_log(written(tmp_path, events))
    np.testing.assert_allclose(log.seconds, TIMES - [0.01, 0.0], atol=1e-5)
    assert any("ray.get and ray.wait within a task is waiting" in one for one in log.remarks)


def test_an_actor_is_built_before_its_work(tmp_path):
    events = task("Trainer.__init__", 0, -9.0, 4.0) + task("Trainer.__init__", 1, -8.0, 20.0)
    log = read_log(written(tmp_path, [*events, *rounds(TIMES)]))
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-5)


def test_the_form_with_numbers_names_nodes_and_workers_beside(tmp_path):
    events = rounds(TIMES)
    for one in events:
        one["pid"] = 0
        one["tid"] = WORKERS.index(one["tid"])
        one["args"] = {"task_id": "5d4b", "func_or_class_name": "step", "actor_id": None}
    names = [{"name": "process_name", "args": {"name": "Node 10.0.0.7"}, "pid": 0, "tid": None}]
    names += [
        {"name": "thread_name", "args": {"name": worker}, "pid": 0, "tid": index}
        for index, worker in enumerate(WORKERS)
    ]
    path = written(tmp_path, [*events, *(one | {"ph": "M"} for one in names)])
    log = read_log(path)
    assert log.workers == ["10.0.0.7 01234567", "10.0.0.7 fedcba98"]
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-5)


def test_tasks_of_several_names_need_a_choice(tmp_path):
    events = rounds(TIMES)
    for k in range(5):
        events += task("report", 0, 100.0 + k, 0.1)
    path = written(tmp_path, events)
    with pytest.raises(ValueError, match=r"'Trainer.step', 'report'.*--where name=Trainer.step"):
        read_log(path)
    log = read_log(path, where={"name": ["Trainer.step"]})
    np.testing.assert_allclose(log.seconds, TIMES, atol=1e-5)
    with pytest.raises(ValueError, match="there are no tasks of the name 'step', but 'Trainer"):
        read_log(path, where={"name": ["step"]})


def test_tasks_that_follow_each_other_without_a_common_end_have_no_rounds(tmp_path):
    events = []
    for worker, seconds in enumerate((0.1, 0.17)):
        for k in range(20):
            events += task("work", worker, k * seconds, 0.99 * seconds - 0.001)
    with pytest.raises(
        ValueError, match=r"in no rounds of all 2 workers: .*: record a row for each"
    ):
        read_log(written(tmp_path, events))


def test_a_timeline_without_tasks_says_how_to_write_one(tmp_path):
    path = written(tmp_path, [event("submit_task", 2, 0.0, 0.1)])
    with pytest.raises(ValueError, match=r"holds no tasks: write it with ray.timeline"):
        read_log(path)


def test_damaged_fields_are_refused_in_a_sentence(tmp_path):
    events = rounds(TIMES[:3])
    path = written(tmp_path, events)
    for one in mutations({"events": events}):
        path.write_text(json.dumps(one.document.get("events")))
        log = read_or_refused(path, partial(read_log, path))
        assert log is None or np.isfinite(log.seconds).all()
    path.write_text(json.dumps(events)[:2000])
    with pytest.raises(
        ValueError, match=r"cannot be read as a timeline of Ray: .*: write it again"
    ):
        read_log(path)
    path.write_text(json.dumps(events[:4])[:-1] + ", " + "[" * 100_000)
    with pytest.raises(ValueError, match="cannot be read as a timeline of Ray"):
        read_log(path)


def test_other_lists_are_not_taken_for_a_timeline(tmp_path):
    path = tmp_path / "other.json"
    step = {"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "pid": 3, "tid": 4}
    for content in ([step], [{"worker": "a", "step": 1, "seconds": 2.0}], {"traceEvents": []}):
        path.write_text(json.dumps(content))
        assert not ray_timeline.FORMAT.recognises(path)
    assert not ray_timeline.FORMAT.recognises(tmp_path)
