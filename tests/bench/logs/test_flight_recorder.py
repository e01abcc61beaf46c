"""The Flight Recorder's dumps: the times of a simulation by hand, and of real ranks on gloo."""

import codecs
import gzip
import json
import os
import pickle
import re
import subprocess
import sys
from functools import partial

import numpy as np
import pytest

from ata_gym.bench.logs import flight_recorder, read_log
from ata_gym.bench.logs.flight_recorder.collectives import Collectives
from ata_gym.bench.logs.flight_recorder.steps import steps_of
from tests.mutated import mutations, read_or_refused

START = 1_795_000_000_000_000_000
"""A time in 2026, in nanoseconds since 1970."""


def played(work, waits, transfer=0.004):
    """When each rank comes to each collective, (K, ranks), and when each ends, (K,).

    ``work`` is (steps, collectives, ranks): what a rank does before each collective; after the
    collectives of ``waits`` it goes on when the collective has ended, after the others at once.
    """
    now = np.zeros(work.shape[2])
    arrivals = []
    ends = []
    for step in work:
        for before, wait in zip(step, waits, strict=True):
            now = now + before
            arrivals.append(now)
            ends.append(now.max() + transfer)
            if wait:
                now = np.full_like(now, ends[-1])
    return np.array(arrivals), np.array(ends)


def jittered(means, steps=30, seed=0):
    """(steps, collectives, ranks) of work around its means, (collectives, ranks)."""
    rng = np.random.default_rng(seed)
    return np.array(means) * rng.gamma(100.0, 0.01, (steps, *np.shape(means)))


def nanoseconds(seconds):
    return int(START + round(1e9 * seconds))


def entry(number, created, operation="nccl:all_reduce", group=("0", "default_pg"), **others):
    """An entry as PyTorch writes it."""
    return {
        "collective_seq_id": number,
        "input_dtypes": ["Float"],
        "input_sizes": [[4]],
        "is_p2p": False,
        "op_id": number,
        "output_dtypes": ["Float"],
        "output_sizes": [[4]],
        "p2p_seq_id": 0,
        "pg_id": int(group[0]),
        "process_group": list(group),
        "profiling_name": operation,
        "record_id": number - 1,
        "retired": True,
        "state": "scheduled",
        "thread_id": "1",
        "thread_name": "python",
        "time_created_ns": nanoseconds(created),
        "time_discovered_completed_ns": 0,
        "time_discovered_started_ns": 0,
        "timeout_ms": 600_000,
        **others,
    }


def document(entries, world=None):
    groups = {}
    if world is not None:
        groups = {"0": {"desc": "default_pg", "name": "0", "ranks": str([*range(world)])}}
    return {
        "comm_lib_version": "2.27.5",
        "entries": entries,
        "nccl_comm_state": {},
        "pg_config": groups,
        "pg_status": {},
        "version": "2.10",
    }


def dump(folder, arrivals, ends=None, durations=None, sizes=(4,), operation="nccl:all_reduce"):
    """The dumps of all ranks; the k-th collective has the k-th size, again from the first."""
    folder.mkdir(exist_ok=True)
    ranks = arrivals.shape[1]
    for rank in range(ranks):
        entries = []
        for k, created in enumerate(arrivals[:, rank]):
            others = {"input_sizes": [[sizes[k % len(sizes)]]]}
            if ends is not None:
                others["time_discovered_completed_ns"] = nanoseconds(ends[k])
            if durations is not None:
                others["duration_ms"] = 1e3 * durations[k, rank]
            entries.append(entry(k + 1, created, operation, **others))
        write(folder, rank, document(entries, ranks))
    return folder


def write(folder, rank, content):
    (folder / f"rank_{rank}.json").write_text(json.dumps(content, separators=(",", ":")))


def read(folder, rank):
    return json.loads((folder / f"rank_{rank}.json").read_text())


DATA_PARALLEL = [[0.030, 0.030, 0.050], [0.020] * 3, [0.020] * 3, [0.020] * 3]
"""Forward and backward to the first bucket, then to the others; rank 2 is late in the first."""
LATE = [[0.050] * 3, [0.020] * 3, [0.020] * 3, [0.020, 0.040, 0.020]]
"""Rank 1 is late in the last part, and without it all come to each collective together."""
SHARDED = [[0.020, 0.030, 0.020], [0.010, 0.015, 0.010], [0.015, 0.020, 0.015]]
"""A rank waits for the weights of each layer; rank 1 has more to do in each."""


@pytest.mark.parametrize(
    ("means", "waits", "sizes"),
    [
        ([[0.03, 0.05, 0.04]], [True], [4]),
        (DATA_PARALLEL, [False, False, False, True], [9, 4, 4, 4]),
        ([*DATA_PARALLEL, [0.01] * 3], [False, False, False, True, True], [9, 4, 4, 4, 1]),
        (SHARDED, [True] * 3, [8, 8, 5]),
        (DATA_PARALLEL, [False, False, False, True], [4]),
        (LATE, [False, False, False, True], [4]),
    ],
    ids=["a barrier", "buckets", "buckets and a loss", "sharded", "equal buckets", "late"],
)
@pytest.mark.parametrize("known", [True, False], ids=["ends", "no ends"])
def test_a_rank_works_from_the_end_of_a_wait_to_its_arrival_at_the_next(
    tmp_path,
    means,
    waits,
    sizes,
    known,
):
    work = jittered(means)
    arrivals, ends = played(work, waits)
    operation = "nccl:all_reduce" if known else "gloo:all_reduce"
    folder = dump(tmp_path / "job", arrivals, ends if known else None, None, sizes, operation)
    log = read_log(folder)
    # the first steps lack the end of the step before
    truth = work.sum(axis=1)[-len(log.seconds) :]
    assert len(truth) >= 28
    assert log.workers == ["0", "1", "2"]
    assert log.unit == "s"
    transfers = 0.004 * sum(waits)
    lengths = np.diff(ends.reshape(len(work), -1)[:, -1])[-len(truth) :]
    if known:
        np.testing.assert_allclose(log.seconds, truth, atol=1e-7)
        assert (log.rest >= transfers - 1e-7).all()
    else:
        np.testing.assert_allclose(log.seconds, truth + transfers, atol=1e-7)
        assert any("transfers counts as work" in remark for remark in log.remarks)
        lengths = np.diff(arrivals[len(waits) - 1 :: len(waits)].max(axis=1))[-len(truth) :]
    np.testing.assert_allclose(log.step_times, lengths, atol=1e-7)
    said = [remark for remark in log.remarks if "wait for each other" in remark]
    if len(waits) > 1:
        assert said == [
            f"A step is the {len(waits)} collectives that repeat, and ranks wait for each other in"
            f" {sum(waits)} of them.",
        ]
    queued = [remark for remark in log.remarks if "TORCH_NCCL_ENABLE_TIMING" in remark]
    assert bool(queued) == known


def test_a_rank_that_is_late_by_less_than_a_bucket_does_not_make_the_others_idle(tmp_path):
    # no rank overtakes another: only the changes from step to step show that nobody waits
    work = jittered([[0.10, 0.13], [0.08, 0.08]], steps=60)
    arrivals, ends = played(work, [False, True])
    assert (arrivals[1::2].min(axis=1) > arrivals[::2].max(axis=1)).all()
    log = read_log(dump(tmp_path / "job", arrivals, ends, sizes=[7, 3]))
    np.testing.assert_allclose(log.seconds, work.sum(axis=1)[-len(log.seconds) :], atol=1e-7)


SCHEMES = {
    "barrier": ([True], [1], "all_reduce"),
    "buckets": ([False, False, False, True], [9, 4, 4, 4], "all_reduce"),
    "equal buckets": ([False, False, False, False, True], [4], "all_reduce"),
    "a loss": ([False, False, True, True], [4, 4, 4, 1], "all_reduce"),
    "sharded": ([True] * 6, [*range(6)], "all_gather"),
}


@pytest.mark.parametrize("change", ["always", "from the middle", "rarely", "all of its work"])
@pytest.mark.parametrize("name", SCHEMES)
def test_a_slow_rank_is_found_wherever_and_whenever_it_is_slow(name, change):
    waits, sizes, operation = SCHEMES[name]
    for seed in range(12):
        rng = np.random.default_rng(seed)
        ranks = int(rng.choice([2, 3, 8]))
        steps = int(rng.integers(20, 60))
        place, slow = rng.integers(len(waits)), rng.integers(ranks)
        work = np.full((steps, len(waits), ranks), 0.02)
        work[:, 0] = 0.06
        if change == "always":
            work[:, place, slow] += 0.1
        elif change == "from the middle":
            work[steps // 2 :, place, slow] += 0.1
        elif change == "rarely":
            work[rng.permutation(steps)[: steps // 8], place, slow] += 0.5
        else:
            work[:, :, slow] *= 1.5
        work *= rng.gamma(400.0, 1 / 400.0, work.shape)
        arrivals, _ = played(work, waits, 0.0)
        kinds = [sizes[k % len(sizes)] for k in range(len(arrivals))]
        collectives = Collectives(
            [operation] * len(arrivals),
            [str(kind) for kind in kinds],
            arrivals,
            np.full(len(arrivals), np.nan),
            [],
        )
        seconds = steps_of(collectives).seconds
        truth = work.sum(axis=1)[-len(seconds) :]
        assert len(seconds) >= steps - 2
        assert seconds.mean(axis=0).argmax() == slow
        np.testing.assert_allclose(seconds.mean(axis=0), truth.mean(axis=0), rtol=0.05)


@pytest.mark.parametrize("known", [True, False], ids=["ends", "no ends"])
@pytest.mark.parametrize("sizes", [[9, 4, 4, 4], [4]])
def test_times_that_never_change_are_read_with_equal_work_where_it_can_be(tmp_path, sizes, known):
    work = np.tile(DATA_PARALLEL, (30, 1, 1))
    arrivals, ends = played(work, [False, False, False, True])
    log = read_log(dump(tmp_path / "job", arrivals, ends if known else None, None, sizes))
    truth = [0.090, 0.090, 0.110] if known else [0.094, 0.094, 0.114]
    np.testing.assert_allclose(log.seconds, [truth] * 29, atol=1e-7)


def test_ranks_that_do_nothing_have_no_steps_to_split(tmp_path):
    folder = dump(tmp_path / "job", np.zeros((9, 3)))
    log = read_or_refused(folder, partial(read_log, folder))
    assert log is None or (log.seconds == 0.0).all()


def test_what_is_before_and_between_the_steps_is_left_out(tmp_path):
    work = jittered(DATA_PARALLEL, steps=40)
    arrivals, _ = played(work, [False, False, False, True])
    sizes = [9, 4, 4, 4]
    # the weights are sent at the beginning, and after 20 steps is an evaluation
    times = [*(arrivals[:3] - 2.0), *arrivals[:80], *(arrivals[80:] + 1.0)]
    times.insert(83, arrivals[80] + 0.5)
    kinds = [1, 2, 3, *sizes * 20, 77, *sizes * 20]
    folder = dump(tmp_path / "job", np.array(times), None, sizes=kinds)
    log = read_log(folder)
    truth = work.sum(axis=1) + 0.004
    np.testing.assert_allclose(log.seconds, np.delete(truth, [0, 20], axis=0), atol=1e-7)


def test_a_buffer_that_wrote_over_the_beginning_holds_the_steps_of_all_ranks(tmp_path):
    work = jittered(DATA_PARALLEL, steps=40)
    arrivals, ends = played(work, [False, False, False, True])
    folder = dump(tmp_path / "job", arrivals, ends, sizes=[9, 4, 4, 4])
    for rank, first in enumerate((30, 41, 35)):
        content = read(folder, rank)
        content["entries"] = content["entries"][first:]
        write(folder, rank, content)
    log = read_log(folder)
    truth = work.sum(axis=1)[-len(log.seconds) :]
    assert len(truth) >= 28
    np.testing.assert_allclose(log.seconds, truth, atol=1e-7)
    assert any("written over" in remark for remark in log.remarks)


def test_durations_on_the_devices_count_where_the_processes_queue_ahead(tmp_path):
    work = jittered([[0.03, 0.05, 0.04]])
    arrivals, ends = played(work, [True])
    durations = ends[:, None] - arrivals
    queued = np.repeat(arrivals.max(axis=1, keepdims=True), 3, axis=1) - 0.02
    log = read_log(dump(tmp_path / "job", queued, None, durations))
    np.testing.assert_allclose(log.seconds, work[1:, 0], atol=1e-6)
    np.testing.assert_allclose(log.rest, 0.004, atol=1e-6)
    assert any("durations of the collectives" in remark for remark in log.remarks)
    # the last ones may still run
    content = read(tmp_path / "job", 1)
    del content["entries"][-1]["duration_ms"]
    write(tmp_path / "job", 1, content)
    np.testing.assert_allclose(read_log(tmp_path / "job").seconds, work[1:-1, 0], atol=1e-6)


def test_collectives_that_do_not_repeat_are_steps_one_by_one(tmp_path):
    work = jittered([[0.03, 0.05, 0.04]])
    arrivals, ends = played(work, [True])
    folder = dump(tmp_path / "job", arrivals, ends)
    operations = np.random.default_rng(1).integers(0, 4, len(arrivals)).tolist()
    for rank in range(3):
        content = read(folder, rank)
        for one, kind in zip(content["entries"], operations, strict=True):
            one["profiling_name"] = ["nccl:all_reduce", "nccl:barrier", "nccl:a", "nccl:b"][kind]
        write(folder, rank, content)
    log = read_log(folder)
    np.testing.assert_allclose(log.seconds, work[1:, 0], atol=1e-7)
    assert "Each collective of all ranks counts as a step." in log.remarks


def test_shapes_that_change_from_step_to_step_still_repeat_by_name(tmp_path):
    work = jittered(SHARDED)
    arrivals, ends = played(work, [True] * 3)
    folder = dump(tmp_path / "job", arrivals, ends, sizes=[*range(90)])
    for rank in range(3):
        content = read(folder, rank)
        for one in content["entries"][2::3]:
            one["profiling_name"] = "nccl:reduce_scatter"
        write(folder, rank, content)
    log = read_log(folder)
    np.testing.assert_allclose(log.seconds, work.sum(axis=1)[-len(log.seconds) :], atol=1e-7)


def a_job(tmp_path, **others):
    arrivals, ends = played(jittered([[0.03, 0.05, 0.04]]), [True])
    return dump(tmp_path / "job", arrivals, ends, **others)


def test_who_did_not_come_is_named_first(tmp_path):
    folder = a_job(tmp_path)
    content = read(folder, 1)
    content["entries"] = content["entries"][:-1]
    write(folder, 1, content)
    sentence = (
        "When the dumps were written, rank 1 had not come to collective 30 of group 0 (default_pg),"
        " nccl:all_reduce, and ranks 0, 2 had: a job that hangs there waits for rank 1."
    )
    assert read_log(folder).remarks[0] == sentence
    # a job that hangs at once has no steps, and this is what its dumps can say
    for rank in range(3):
        content = read(folder, rank)
        content["entries"] = content["entries"][: 1 if rank == 1 else 2]
        write(folder, rank, content)
    with pytest.raises(
        ValueError, match=r"rank 1 had not come to collective 2 .* have 1 collectives in common"
    ):
        read_log(folder)


def test_ranks_that_are_not_here_are_counted(tmp_path):
    folder = a_job(tmp_path)
    (folder / "rank_1.json").unlink()
    log = read_log(folder)
    assert log.workers == ["0", "2"]
    assert log.remarks[0].startswith("2 of 3 ranks are here: 0, 2.")


def test_sends_and_groups_of_some_ranks_are_left_out_and_said(tmp_path):
    folder = a_job(tmp_path)
    before = read_log(folder)
    for rank in range(3):
        content = read(folder, rank)
        send = entry(31, 1.0, "nccl:send 0->1", is_p2p=True)
        content["entries"].insert(5, send)
        if rank < 2:
            content["entries"].insert(9, entry(1, 1.0, group=("1", "tensor")))
        write(folder, rank, content)
    log = read_log(folder)
    np.testing.assert_array_equal(log.seconds, before.seconds)
    assert any(remark.startswith("3 sends and receives are left out") for remark in log.remarks)
    assert any(remark.startswith("The collectives of 1 groups of some") for remark in log.remarks)


def test_ranks_that_run_different_operations_count_until_then(tmp_path):
    folder = a_job(tmp_path)
    content = read(folder, 2)
    content["entries"][20]["profiling_name"] = "nccl:broadcast"
    write(folder, 2, content)
    log = read_log(folder)
    assert len(log.seconds) == 19
    assert (
        "In collective 21 of group 0 rank 2 runs nccl:broadcast, and rank 0 runs nccl:all_reduce:"
        " only the 20 collectives before count."
    ) in log.remarks
    content["entries"][0]["profiling_name"] = "nccl:broadcast"
    write(folder, 2, content)
    with pytest.raises(ValueError, match="different programs, or are of different jobs"):
        read_log(folder)


def test_clocks_of_other_hosts_are_set_by_the_ends(tmp_path):
    work = jittered([[0.03, 0.05, 0.04]])
    arrivals, ends = played(work, [True])
    folder = dump(tmp_path / "job", arrivals, ends)
    content = read(folder, 2)
    for one in content["entries"]:
        one["time_created_ns"] += 400_000_000
        one["time_discovered_completed_ns"] += 400_000_000
    write(folder, 2, content)
    log = read_log(folder)
    np.testing.assert_allclose(log.seconds, work[1:, 0], atol=1e-7)
    assert any("the clock of rank 2 by +0.4 s" in remark for remark in log.remarks)


def moved(folder, rank, seconds):
    content = read(folder, rank)
    for one in content["entries"]:
        one["time_created_ns"] += int(1e9 * seconds)
    write(folder, rank, content)


def no_wait(tmp_path):
    arrivals, _ = played(jittered([[0.03, 0.05, 0.04]]), [False])
    return dump(tmp_path / "job", arrivals)


def edited(change):
    def folder_of(tmp_path):
        folder = a_job(tmp_path)
        change(folder)
        return folder

    return folder_of


def replaced(folder, rank, **others):
    write(folder, rank, read(folder, rank) | others)


def pickles_of(tmp_path):
    for rank in range(2):
        content = pickle.dumps({"version": "2.10", "pg_config": {}, "entries": []}, protocol=2)
        (tmp_path / f"nccl_trace_rank_{rank}").write_bytes(content)
    return tmp_path


def only_first(folder):
    for rank in range(3):
        content = read(folder, rank)
        content["entries"] = content["entries"][10 * rank : 10 * rank + 10]
        write(folder, rank, content)


FAULTS = {
    "a pickle": (
        pickles_of,
        "nccl_trace_rank_0 is a dump of the Flight Recorder in Python's pickle, which is never"
        " opened.*_dump_nccl_trace_json",
    ),
    "another time": (
        edited(lambda folder: moved(folder, 1, 3600.0)),
        r"rank_0.json ends .* s before rank_1.json begins: put the dumps of one run",
    ),
    "another job": (
        edited(lambda folder: replaced(folder, 1, pg_config={"0": {"ranks": "[0, 1]"}})),
        "rank_0.json is of a job of 3 ranks, and rank_1.json of one of 2",
    ),
    "no rank in the name": (
        edited(lambda folder: (folder / "rank_2.json").rename(folder / "dump.json")),
        "dump.json names no rank, and a dump does not hold its rank: put the dumps",
    ),
    "the same rank twice": (
        edited(lambda folder: (folder / "rank_2.json").rename(folder / "other_rank_1.json")),
        "other_rank_1.json and rank_1.json are both of rank 1",
    ),
    "a rank of no such job": (
        edited(lambda folder: (folder / "rank_2.json").rename(folder / "rank_7.json")),
        "rank_7.json would be of rank 7, and the job has the ranks 0, 1, 2",
    ),
    "one file": (
        lambda tmp_path: a_job(tmp_path) / "rank_0.json",
        "rank_0.json is the Flight Recorder of one rank.*: put them in a folder",
    ),
    "nothing recorded": (
        edited(lambda folder: replaced(folder, 1, entries=[])),
        "rank_1.json holds no collectives: run the job with TORCH_FR_BUFFER_SIZE",
    ),
    "nothing in common": (
        edited(only_first),
        "no collective is in the dumps of all ranks: rank 0 1 to 10, rank 1 11 to 20, rank 2",
    ),
    "nobody waits": (no_wait, "the ranks wait for each other in none of the collectives"),
    "half a file": (
        edited(
            lambda folder: (folder / "rank_1.json").write_text(
                (folder / "rank_1.json").read_text()[:3000],
            ),
        ),
        "rank_1.json cannot be read as a dump of the Flight Recorder: .*: write it again",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_what_cannot_be_read_is_refused_with_what_to_do(tmp_path, name):
    build, message = FAULTS[name]
    with pytest.raises(ValueError, match=message):
        read_log(build(tmp_path))


def test_other_files_of_the_folder_are_named(tmp_path):
    folder = a_job(tmp_path)
    (folder / "notes.txt").write_text("a note")
    assert "No dumps of the Flight Recorder, and left out: notes.txt." in read_log(folder).remarks


def compressed(folder):
    for file in [*folder.iterdir()]:
        (folder / f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()


def marked(folder):
    for file in folder.iterdir():
        file.write_bytes(codecs.BOM_UTF8 + file.read_bytes())


def by_node(folder):
    for rank, file in enumerate(sorted(folder.iterdir())):
        (folder / f"node{rank}").mkdir()
        file.rename(folder / f"node{rank}" / file.name)


def in_a_folder_of_each_rank(folder):
    for rank, file in enumerate(sorted(folder.iterdir())):
        (folder / f"rank{rank}").mkdir()
        file.rename(folder / f"rank{rank}" / "dump_2.json")


@pytest.mark.parametrize("change", [compressed, marked, by_node, in_a_folder_of_each_rank])
def test_dumps_are_read_compressed_with_a_mark_and_from_folders(change, tmp_path):
    folder = a_job(tmp_path)
    expected = read_log(folder)
    change(folder)
    log = read_log(folder)
    np.testing.assert_array_equal(log.seconds, expected.seconds)
    assert log.workers == expected.workers


def test_the_dumps_of_a_run_and_of_its_restart_are_refused(tmp_path):
    for attempt in ("attempt_0", "attempt_1"):
        (tmp_path / attempt).mkdir()
        a_job(tmp_path / attempt)
    sentence = "attempt_0/job/rank_0.json and attempt_1/job/rank_0.json are both of rank 0"
    with pytest.raises(ValueError, match=f"{sentence}.*: put the dumps of one run in a folder"):
        read_log(tmp_path)


def test_damaged_fields_are_refused_in_a_sentence(tmp_path):
    folder = a_job(tmp_path)
    content = read(folder, 0)
    content["entries"] = content["entries"][:6]
    for one in mutations(content):
        (folder / "rank_0.json").write_text(json.dumps(one.document))
        log = read_or_refused(folder, partial(read_log, folder))
        if log is not None:
            assert np.isfinite(log.seconds).all()
            assert (log.seconds >= 0.0).all()


def test_other_json_is_not_taken_for_a_dump(tmp_path):
    trace = tmp_path / "trace.json"
    trace.write_text(
        json.dumps({"distributedInfo": {"pg_config": [{"pg_name": "0"}]}, "traceEvents": []}),
    )
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"rank": 0, "step": 1, "collective_seq_id": 3, "seconds": 1.0}\n')
    # traces say more than the dumps beside them
    folder = a_job(tmp_path)
    (folder / "trace.json").write_text(trace.read_text())
    for path in (trace, rows, folder, tmp_path / "none.json"):
        assert not flight_recorder.FORMAT.recognises(path)


RANKS = """
import json, os, sys, time
from datetime import timedelta
import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as recorder

folder = sys.argv[1]


def main(rank):
    place = f"file://{folder}/store"
    limit = timedelta(seconds=60)
    dist.init_process_group("gloo", place, limit, world_size=3, rank=rank)
    first, last = torch.ones(5), torch.ones(3)
    arrivals = []
    for step in range(10):
        time.sleep(0.08 if rank == 1 else 0.03)
        arrivals.append(time.time_ns())
        work = dist.all_reduce(first, async_op=True)
        time.sleep(0.03)
        arrivals.append(time.time_ns())
        dist.all_reduce(last)
        work.wait()
    with open(f"{folder}/json/rank_{rank}.json", "wb") as file:
        file.write(recorder._dump_fr_trace_json())
    pickled = recorder._dump_fr_trace()
    with open(f"{folder}/pickles/rank_{rank}", "wb") as file:
        file.write(pickled)
    with open(f"{folder}/arrivals_{rank}", "w") as file:
        json.dump(arrivals, file)
    dist.barrier()


# forked, so that torch is imported once
children = []
for rank in range(3):
    child = os.fork()
    if not child:
        main(rank)
        os._exit(0)
    children.append(child)
codes = [os.waitpid(child, 0)[1] for child in children]
sys.exit(any(codes))
"""


def test_real_dumps_of_gloo_have_the_arrivals_that_the_ranks_noted(tmp_path):
    for name in ("json", "pickles"):
        (tmp_path / name).mkdir()
    subprocess.run(
        [sys.executable, "-c", RANKS, str(tmp_path)],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        check=True,
        timeout=120,
    )
    noted = [json.loads((tmp_path / f"arrivals_{rank}").read_text()) for rank in range(3)]
    arrivals = np.array(noted).T.reshape(10, 2, 3)
    ends = arrivals[:, 1].max(axis=1)
    truth = 1e-9 * (arrivals[1:, 1] - ends[:-1, None])
    with pytest.raises(ValueError, match=r"rank_0 is a dump of .* pickle") as refused:
        read_log(tmp_path / "pickles")
    # the command that the error gives, on the rank's own dumps
    command = re.search(r"python -c '(.*)' FILE", str(refused.value))[1]
    for rank in range(3):
        pickled = tmp_path / "pickles" / f"rank_{rank}"
        subprocess.run([sys.executable, "-c", command, str(pickled)], check=True, timeout=60)
    for name in ("json", "pickles"):
        log = read_log(tmp_path / name)
        assert log.workers == ["0", "1", "2"]
        assert log.seconds.shape == truth.shape
        assert (np.median(log.seconds, axis=0).argmax()) == 1
        np.testing.assert_allclose(np.median(log.seconds - truth, axis=0), 0.0, atol=2e-3)
        assert not any("ranks are here" in remark for remark in log.remarks)
