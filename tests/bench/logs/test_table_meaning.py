"""Rows of tables mean what they are: the right times, or a sentence with the cure."""

import re
import shlex

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.logs import read_log
from ata_gym.cli.options import entries_by_column


def own_times(steps=30, n=4, slow=1, seed=0, noise=0.03):
    """(steps, n) times of which one worker's are 1.7 times as long."""
    times = 0.1 * np.random.default_rng(seed).gamma(noise**-2, noise**2, (steps, n))
    times[:, slow] *= 1.7
    return times


def long_table(times, **more):
    """A row for each worker and step; more columns are functions of the steps and workers."""
    steps, n = times.shape
    step, worker = np.divmod(np.arange(steps * n), n)
    columns = {name: make(step, worker) for name, make in more.items()}
    return pl.DataFrame({"rank": worker, "step": step, "seconds": times.ravel(), **columns})


def read(frame, tmp_path, **options):
    path = tmp_path / "times.csv"
    frame.write_csv(path)
    return read_log(path, **options)


def refusal(frame, tmp_path, **options):
    with pytest.raises(ValueError, match=r"times\.csv: ") as caught:
        read(frame, tmp_path, **options)
    return str(caught.value).partition("times.csv: ")[2]


def entries_of(sentence):
    """The entries by column of the --where that a sentence proposes, as the command takes it."""
    words = shlex.split(sentence[sentence.index("--where") :])
    return entries_by_column([words[1].rstrip(";,")])


def shuffled(frame, seed=0):
    rng = np.random.default_rng(seed)
    columns = rng.permutation(frame.columns).tolist()
    return frame[rng.permutation(frame.height).tolist()].select(columns)


def assert_times(log, times, workers=None):
    np.testing.assert_allclose(log.seconds, times, rtol=1e-9)
    if workers is not None:
        assert [*log.workers] == workers


# rows that are not shares of work

OPERATIONS = [
    ("optype", ["forward-compute", "backward-compute"], ["grads-reduce-scatter", "forward-recv"]),
    ("op", ["fwd", "bwd"], ["all_reduce"]),
    ("Name", ["Forward", "Backward", "DataLoader wait"], ["ncclDevKernel_AllReduce_Sum"]),
    ("phase", ["compute"], ["comm"]),
    ("event", ["forward pass", "backward pass"], ["barrier"]),
    ("kernel type", ["gemm"], ["c10d::allgather_"]),
    ("what", ["work"], ["idle"]),
    ("x", ["a", "b"], []),
    ("category", ["time_forward", "time_backward"], ["time_sync"]),
]


@pytest.mark.parametrize(("column", "work", "waits"), OPERATIONS)
def test_rows_of_operations_are_asked_for_and_the_proposed_ones_are_the_work(
    tmp_path,
    column,
    work,
    waits,
):
    times = own_times(n=5, slow=3)
    step_times = times.max(axis=1, keepdims=True)
    parts = np.random.default_rng(1).dirichlet(np.full(len(work), 20.0))
    rows = [
        long_table(part * times, **{column: lambda s, _w, entry=entry: [entry] * len(s)})
        for entry, part in zip(work, parts, strict=True)
    ]
    waiting = 1.2 * (step_times - times) + 0.01
    rows += [
        long_table(waiting, **{column: lambda s, _w, entry=entry: [entry] * len(s)})
        for entry in waits
    ]
    table = pl.concat(rows)
    by_step = table.sort("step", "rank", maintain_order=True)
    for one in (table, by_step, shuffled(table)):
        sentence = refusal(one, tmp_path)
        where = entries_of(sentence)
        assert where == {column: sorted(map(str, work))}
        for wait in waits:
            assert re.search(rf"of which .*'{wait}'.* look like waiting", sentence)
        log = read(one, tmp_path, where=where)
        assert_times(log, times)
        assert (log.tasks == 1).all()
        assert log.remarks == []


def test_kinds_that_are_numbers_are_asked_for(tmp_path):
    table = pl.concat(
        [long_table(own_times(), stage=lambda s, _w, k=k: [k] * len(s)) for k in "01"]
    )
    sentence = refusal(table, tmp_path)
    assert entries_of(sentence) == {"stage": ["0"]}
    assert "or call the column epoch" in sentence
    log = read(table, tmp_path, where={"stage": ["0", "1"]})
    assert_times(log, 2 * own_times())


def test_figures_in_a_long_table_are_told_from_times_by_their_names(tmp_path):
    figures = {"step_time": own_times(), "loss": np.ones((30, 4)), "lr": np.ones((30, 4))}
    table = pl.concat(
        [
            long_table(values, metric=lambda s, _w, name=name: [name] * len(s))
            for name, values in figures.items()
        ]
    ).rename({"seconds": "value"})
    where = entries_of(refusal(shuffled(table), tmp_path))
    assert where == {"metric": ["step_time"]}
    assert_times(read(shuffled(table), tmp_path, where=where), own_times())


def test_an_operation_is_not_a_worker_of_its_device(tmp_path):
    table = pl.concat(
        [long_table(own_times(), device=lambda s, _w, d=d: [d] * len(s)) for d in ("cpu", "cuda")]
    )
    assert entries_of(refusal(table, tmp_path)) == {"device": ["cpu", "cuda"]}


def test_without_a_column_of_steps_operations_are_asked_for_too(tmp_path):
    table = pl.concat(
        [
            long_table(own_times(), op=lambda s, _w: ["forward"] * len(s)),
            long_table(own_times(seed=1), op=lambda s, _w: ["recv"] * len(s)),
        ]
    ).drop("step")
    assert entries_of(refusal(table, tmp_path)) == {"op": ["forward"]}


def test_columns_that_say_nothing_of_the_kind_of_a_row_change_nothing(tmp_path):
    times = own_times()
    table = long_table(
        times,
        op=lambda s, _w: ["step"] * len(s),
        hostname=lambda _s, w: [f"node{worker // 2}" for worker in w],
        gpu_model=lambda _s, w: [["A100", "H100"][worker % 2] for worker in w],
        queue=lambda _s, w: [["test", "main"][worker % 2] for worker in w],
        job_id=lambda s, _w: [4711] * len(s),
        run_name=lambda _s, w: [f"run-{worker}" for worker in w],
        loss=lambda s, w: np.round(1.0 / (1 + s + w), 1),
        timestamp=lambda s, w: 1.7e9 + s + 0.01 * w,
        at=lambda s, _w: [f"2026-01-01T00:00:{step:02}" for step in s],
        epoch=lambda s, _w: s // 10,
        lr_phase=lambda s, _w: [["warmup", "stable", "decay"][step // 10] for step in s],
        batch_size=lambda s, _w: [32] * len(s),
    )
    log = read(table, tmp_path)
    assert_times(log, times, ["0", "1", "2", "3"])
    assert (log.remarks, log.rest) == ([], None)
    for seed in range(5):
        other = read(shuffled(table, seed), tmp_path)
        np.testing.assert_array_equal(other.seconds, log.seconds)
        assert (other.workers, other.steps) == (log.workers, log.steps)


def test_rows_of_a_recorder_are_tasks_also_where_workers_have_different_numbers(tmp_path):
    rng = np.random.default_rng(0)
    rows = []
    sums = np.zeros((40, 3))
    counts = np.zeros((40, 3))
    for step in range(40):
        split = [4, 4 + step % 3, 4 - step % 3]
        for worker, count in enumerate(split):
            for duration in rng.gamma(50.0, 0.02, count):
                rows.append((f"gpu{worker}", step + 1, duration))
                sums[step, worker] += duration
                counts[step, worker] += 1
    for names in (["worker", "round", "duration"], ["rank", "iter", "took"]):
        table = pl.DataFrame(rows, names, orient="row")
        for one in (table, shuffled(table)):
            log = read(one, tmp_path)
            assert_times(log, sums, ["gpu0", "gpu1", "gpu2"])
            np.testing.assert_array_equal(log.tasks, counts)
            assert "from 2 to 6 rows in a step" in " ".join(log.remarks)


def test_unequal_numbers_of_rows_that_are_no_allocation_are_refused(tmp_path):
    times = own_times()
    table = long_table(times)
    # the steps that rank 2 wrote twice, in the order of steps: no restart can be seen
    twice = pl.concat([table, table.filter(rank=2).head(9)]).sort("step", maintain_order=True)
    # evaluations of rank 0, in a file without a column that says so
    evaluations = table.filter(pl.col("rank") == 0, pl.col("step") % 10 == 9)
    sentence = refusal(pl.concat([table, evaluations]), tmp_path)
    assert "worker 0 has 2 rows in step 9, and worker 1 has 1" in sentence
    for one in (twice, shuffled(twice)):
        sentence = refusal(one, tmp_path)
        assert "worker 2 has 2 rows in step 0, and worker 0 has 1" in sentence
        assert "9 of 30 steps" in sentence


@pytest.mark.parametrize("column", ["run", "Job ID", "attempt"])
def test_rows_of_two_jobs_are_refused_and_one_is_chosen(tmp_path, column):
    first, second = own_times(), own_times(slow=2, seed=1)
    table = pl.concat(
        [
            long_table(times, **{column: lambda s, _w, name=name: [name] * len(s)})
            for name, times in ((7, first), (8, second))
        ]
    )
    sentence = refusal(shuffled(table), tmp_path)
    assert "2 runs" in sentence
    assert entries_of(sentence) == {column: ["8"]}
    assert_times(read(shuffled(table), tmp_path, where=entries_of(sentence)), second)
    assert_times(read(table, tmp_path, where={column: ["7"]}), first)


def test_chosen_columns_and_entries_that_are_not_there_are_named(tmp_path):
    table = long_table(own_times(), phase=lambda s, _w: ["train"] * len(s))
    sentence = refusal(table, tmp_path, where={"fase": ["train"]})
    assert sentence.startswith("there is no column 'fase'")
    assert "'phase'" in sentence
    sentence = refusal(table, tmp_path, where={"phase": ["train", "training"]})
    assert sentence == "column 'phase' has no entry 'training'; its entries are 'train'"
    assert "at least one entry of column 'phase'" in refusal(table, tmp_path, where={"phase": []})
    sentence = refusal(table, tmp_path, where={"rank": ["1"], "phase": ["train"]})
    assert "there is one worker, '1'" in sentence


@pytest.mark.parametrize(
    ("column", "train", "other"),
    [
        ("phase", "train", "eval"),
        ("split", "training", "Validation"),
        ("mode", "TRAIN_STEP", "test"),
        ("kind", "step", "checkpoint"),
        ("is_eval", "false", "true"),
        ("training", 1, 0),
    ],
)
def test_rows_of_evaluation_are_left_out_beside_training(tmp_path, column, train, other):
    times = own_times()
    table = long_table(times, **{column: lambda s, _w: [train] * len(s)})
    pauses = long_table(times + 1, **{column: lambda s, _w: [other] * len(s)})
    for ranks in ([0], [0, 1, 2, 3]):
        rows = pauses.filter(pl.col("rank").is_in(ranks), pl.col("step") % 10 == 9)
        for one in (pl.concat([table, rows]), shuffled(pl.concat([table, rows]))):
            log = read(one, tmp_path)
            assert_times(log, times)
            assert re.match(rf"{3 * len(ranks)} rows with '{other}' in column", log.remarks[0])
    chosen = read(pl.concat([table, pauses]), tmp_path, where={column: [str(other)]})
    assert_times(chosen, times + 1)


# keys


@pytest.mark.parametrize(
    ("host", "local"),
    [("host", "local_rank"), ("node_rank", "Local Rank"), ("machine", "gpu"), ("host", "rank")],
)
def test_epochs_and_hosts_are_keys_beside_evaluation_in_any_order(tmp_path, host, local):
    times = own_times(steps=42, n=6, slow=4)
    table = pl.concat(
        [
            long_table(
                seconds,
                epoch=lambda s, _w: s // 7,
                batch_idx=lambda s, _w: s % 7,
                mode=lambda s, _w, mode=mode: [mode] * len(s),
                **{
                    host: lambda _s, w: w // 3,
                    local: lambda _s, w: w % 3,
                },
            ).select("epoch", "batch_idx", "mode", host, local, "seconds")
            for mode, seconds in (("fit", times), ("val", times[:20] * 3))
        ]
    )
    for one in (table, shuffled(table)):
        log = read(one, tmp_path)
        assert_times(log, times, ["0:0", "0:1", "0:2", "1:0", "1:1", "1:2"])
        assert [*log.steps[:8]] == ["0:0", "0:1", "0:2", "0:3", "0:4", "0:5", "0:6", "1:0"]


def test_further_columns_of_any_type_change_nothing(tmp_path):
    times = own_times()
    table = long_table(times)
    rows = table.height
    entries = {
        "list": pl.Series([[k] for k in range(rows)]),
        "struct": pl.Series([{"a": k} for k in range(rows)]),
        "bytes": pl.Series([b"x"] * rows),
        "null": pl.Series([None] * rows),
        "length": pl.Series(np.arange(rows), dtype=pl.Duration("ms")),
        "moment": pl.Series(np.arange(rows), dtype=pl.Datetime("ms")),
        "flag": pl.Series([k % 2 == 0 for k in range(rows)]),
        "category": pl.Series([str(k % 3) for k in range(rows)], dtype=pl.Categorical),
        "gaps": pl.Series([None if k % 5 else k for k in range(rows)]),
        "nan": pl.Series([np.nan] * rows),
    }
    path = tmp_path / "times.parquet"
    for kind, column in entries.items():
        for name in ("host", "gpu", "epoch", "phase", "note", "comm"):
            table.with_columns(column.alias(name)).write_parquet(path)
            np.testing.assert_array_equal(read_log(path).seconds, times, f"{kind} {name}")


def test_a_global_rank_is_the_worker_beside_its_host_and_its_place_there(tmp_path):
    times = own_times(n=6)
    table = long_table(
        times,
        hostname=lambda _s, w: [f"node{worker // 2}" for worker in w],
        local_rank=lambda _s, w: w % 2,
        device=lambda _s, w: [f"cuda:{worker % 2}" for worker in w],
    )
    assert_times(read(table, tmp_path), times, [*"012345"])
    # a node that was replaced in the middle is no other worker
    moved = table.with_columns(
        hostname=pl.when(pl.col("step") > 20).then(pl.lit("spare")).otherwise("hostname")
    )
    assert_times(read(moved, tmp_path), times, [*"012345"])
    hosts = table.drop("rank")
    assert "--worker-column" not in read(hosts, tmp_path).workers
    both = read(table, tmp_path, worker="hostname,local_rank")
    assert both.workers[:3] == ["node0:0", "node0:1", "node1:0"]
    assert_times(both, times)


def test_global_steps_stay_what_they_are_beside_epochs(tmp_path):
    times = own_times()
    table = long_table(times, epoch=lambda s, _w: s / 10).rename({"step": "trainer/global_step"})
    log = read(table.with_columns(step=pl.col("trainer/global_step") % 10), tmp_path)
    assert_times(log, times)
    assert log.steps[-1] == "29"


def test_steps_that_begin_again_without_a_column_of_epochs_are_passes(tmp_path):
    times = own_times(steps=33)
    # the last pass is cut: 3 steps on all but the last rank
    table = long_table(times).with_columns(step=pl.col("step") % 10)
    table = table.with_row_index().filter(
        ~((pl.col("index") >= 4 * 30) & (pl.col("rank") == 3))
    ).drop("index")  # fmt: skip
    for one in (table, table.sort("rank", maintain_order=True)):
        log = read(one, tmp_path)
        assert_times(log, times[:30])
        assert any("4 passes" in remark for remark in log.remarks)


@pytest.mark.parametrize("by_worker", [False, True])
def test_steps_written_again_after_a_restart_count_once(tmp_path, by_worker):
    times = own_times(steps=40)
    again = own_times(steps=40, seed=7)
    first = long_table(times)
    second = long_table(again).filter(pl.col("step") >= 15, pl.col("rank").is_in([0, 2]))
    table = pl.concat([first, second])
    if by_worker:
        table = table.sort("rank", maintain_order=True)
    expected = times.copy()
    expected[15:, [0, 2]] = again[15:, [0, 2]]
    log = read(table, tmp_path)
    assert_times(log, expected)
    assert (log.tasks == 1).all()
    assert log.remarks == [
        "25 steps of worker 0 and 25 steps of worker 2 were written twice, after a restart; the"
        " later ones count."
    ]
    # the whole job went on from a checkpoint
    everywhere = pl.concat([first, long_table(again).filter(pl.col("step") >= 15)])
    expected[15:] = again[15:]
    assert_times(read(everywhere, tmp_path), expected)


def test_rows_that_are_there_twice_count_once(tmp_path):
    table = long_table(own_times())
    log = read(pl.concat([table, table, table]), tmp_path)
    assert_times(log, own_times())
    assert log.remarks == ["All rows are there 3 times, and count once."]


def test_epochs_may_have_names(tmp_path):
    times = own_times()
    table = long_table(
        times,
        epoch=lambda s, _w: [f"epoch {step // 2 + 1}" for step in s],
    ).with_columns(pl.col("step") % 2)
    log = read(shuffled(table), tmp_path)
    assert_times(log, times)
    assert [*log.steps[-2:]] == ["epoch 15:0", "epoch 15:1"]


# times


def test_several_columns_of_times_are_added_up_when_named(tmp_path):
    times = own_times()
    wait = times.max(axis=1, keepdims=True) - times + 0.02
    table = long_table(
        1e3 * times / 3,
        backward_ms=lambda _s, _w: (2e3 * times / 3).ravel(),
        allreduce_ms=lambda _s, _w: (1e3 * wait).ravel(),
    ).rename({"seconds": "forward_ms"})
    sentence = refusal(table, tmp_path)
    assert sentence == (
        "the column of the duration could be forward_ms or backward_ms: name it with"
        " --duration-column; forward_ms,backward_ms adds these up"
    )
    log = read(table, tmp_path, duration="forward_ms,backward_ms")
    scale = log.seconds.mean() / times.mean()
    assert_times(log, scale * times)
    # all workers leave the step together, 20 ms after the last has its gradient
    np.testing.assert_allclose(log.rest, scale * 0.02, rtol=1e-6)
    mixed = refusal(table, tmp_path, duration="forward_ms,nothing")
    assert "there is no column 'nothing' for the duration" in mixed


@pytest.mark.parametrize(
    ("own", "whole"),
    [("compute_time", "step_time"), ("forward_backward_s", "iter_time"), ("fwd_bwd", "total_time")],
)
def test_the_rest_of_a_step_is_its_whole_without_the_longest_work(tmp_path, own, whole):
    times = own_times()
    rng = np.random.default_rng(3)
    step_times = times.max(axis=1, keepdims=True) + 0.05 + 1e-3 * rng.normal(size=(30, 4))
    table = long_table(times, **{whole: lambda _s, _w: step_times.ravel()})
    log = read(table.rename({"seconds": own}), tmp_path)
    assert_times(log, times)
    expected = np.median(step_times, axis=1) - times.max(axis=1)
    np.testing.assert_allclose(log.rest, expected, rtol=1e-9)


@pytest.mark.parametrize("jitter", [0.0, 2e-5, 2e-4, 1e-3])
@pytest.mark.parametrize("n", [3, 40])
def test_times_of_whole_steps_are_refused(tmp_path, jitter, n):
    times = own_times(n=n, steps=60)
    noise = jitter * np.random.default_rng(1).normal(size=times.shape)
    whole = times.max(axis=1, keepdims=True) + 0.03 + noise
    table = long_table(whole).rename({"seconds": "iteration_seconds"})
    if jitter < 1e-4:
        sentence = refusal(table, tmp_path)
        assert "includes the wait" in sentence
        assert "record the time of each worker until its gradient is there" in sentence
    else:
        # work of near equal workers on batches of several sizes looks alike
        assert "or the times include the wait" in read(table, tmp_path).doubt
    # what does not include it is named
    beside = table.with_columns(loading_ms=pl.Series((times - 0.08).ravel()))
    assert "name a column that does not include it" in refusal(beside, tmp_path)
    beside = table.with_columns(comm_time=pl.Series((whole - times).ravel()))
    assert "less comm_time" in refusal(beside, tmp_path)


@pytest.mark.parametrize("slow", [1.7, 1.1])
@pytest.mark.parametrize("names", [("data_time", "step_time"), ("load_s", "batch_s")])
def test_a_step_that_is_cut_in_two_has_the_wait_in_one_of_them(tmp_path, names, slow):
    times = own_times()
    times[:, 1] *= slow / 1.7
    data = times - 0.06
    noise = 2e-4 * np.random.default_rng(0).normal(size=times.shape)
    step_times = times.max(axis=1, keepdims=True) - data + 0.03 + noise
    table = long_table(data, **{names[1]: lambda _s, _w: step_times.ravel()})
    table = table.rename({"seconds": names[0]})
    for options in ({}, {"duration": names[1]}):
        sentence = refusal(table, tmp_path, **options)
        assert f"{names[1]} + {names[0]} is the same on all workers" in sentence
        assert f"--duration-column {names[0]} tells who is slow in loading" in sentence
    log = read(table, tmp_path, duration=names[0])
    assert_times(log, data)
    whole = np.median(data + step_times, axis=1)
    np.testing.assert_allclose(log.rest, whole - data.max(axis=1), rtol=1e-6)
    both = refusal(table, tmp_path, duration=",".join(names))
    assert "includes the wait" in both
    # the numbers of a table are of one unit, also where one column does not say which
    named = table.rename({names[1]: "step_duration"})
    assert "step_duration + " in refusal(named, tmp_path)


def test_work_beside_the_loader_is_asked_for_where_the_data_do_not_say(tmp_path):
    times = own_times()
    table = long_table(times, data_time=lambda _s, _w: own_times(seed=5).ravel())
    sentence = refusal(table.rename({"seconds": "step_time"}), tmp_path)
    assert "--duration-column step_time, or data_time,step_time for their sum" in sentence
    sentence = refusal(table.rename({"seconds": "compute_time"}), tmp_path)
    assert "compute_time,data_time adds these up" in sentence


def test_computation_beside_the_loader_may_hold_the_wait_too(tmp_path):
    times = own_times()
    whole = times.max(axis=1, keepdims=True) + 0.01
    table = long_table(times - 0.06, compute_time=lambda _s, _w: (whole - times + 0.06).ravel())
    table = table.rename({"seconds": "data_time"})
    sentence = refusal(table, tmp_path, duration="compute_time")
    assert "compute_time + data_time is the same on all workers" in sentence
    assert "includes the wait" in refusal(table, tmp_path, duration="compute_time,data_time")
    assert_times(read(table, tmp_path, duration="data_time"), times - 0.06)


def test_all_columns_of_waiting_are_in_the_whole(tmp_path):
    times = own_times()
    wait = times.max(axis=1, keepdims=True) - times
    table = long_table(
        times,
        idle=lambda _s, _w: wait.ravel(),
        nccl=lambda _s, _w: np.full(120, 0.04),
    ).rename({"seconds": "duration"})
    log = read(table, tmp_path)
    assert_times(log, times)
    np.testing.assert_allclose(log.rest, 0.04)


def test_a_clock_is_no_duration(tmp_path):
    clock = long_table(1.7e9 + own_times().cumsum(axis=0)).rename({"seconds": "wall_time"})
    assert "wall_time grows from step to step" in refusal(clock, tmp_path)
    table = long_table(own_times().cumsum(axis=0)).rename({"seconds": "elapsed"})
    assert "elapsed grows from step to step" in refusal(table, tmp_path)


def test_equal_workers_with_noise_of_their_own_are_read(tmp_path):
    times = np.random.default_rng(0).normal(1.0, 0.002, (60, 4))
    assert_times(read(long_table(times), tmp_path), times)
    # in whole milliseconds
    rounded = np.round(np.random.default_rng(0).normal(100.0, 3.0, (60, 4)))
    assert_times(read(long_table(rounded), tmp_path), rounded)
    log = read(long_table(np.full((20, 3), 5.0)), tmp_path)
    assert "or the times include the wait" in log.doubt
    assert log.remarks == []


# names

NAMES = [
    ("Global Rank", "trainer/global_step", "step_time"),
    ("gpu", "Iteration", "iter_time"),
    ("process", "_step", "forward_backward_time"),
    ("rank_id", "train-step", "train_step_ms"),
    ("node", "batch.idx", "dt"),
    ("WORKER", "itr", "sec/iter"),
    ("proc_id", "time", "duration"),
    ("device", "step", "time"),
    ("dp_rank", "iterNum", "wall time"),
    ("hostname", "round", "latency"),
]


@pytest.mark.parametrize("names", NAMES)
def test_usual_names_are_recognised(tmp_path, names):
    times = own_times()
    table = long_table(times).rename(dict(zip(("rank", "step", "seconds"), names, strict=True)))
    log = read(shuffled(table), tmp_path)
    assert_times(log, log.seconds.mean() / times.mean() * times, [*"0123"])


def test_one_refusal_names_all_columns(tmp_path):
    table = long_table(own_times()).rename({"rank": "who", "seconds": "x"})
    assert refusal(table, tmp_path) == (
        "the column of the worker and the column of the duration are not found among"
        " ['who', 'step', 'x']: name them with --worker-column and --duration-column"
    )
    named = {"worker": "who", "duration": "x"}
    assert_times(read(table, tmp_path, **named), own_times())
    table = table.with_columns(iteration=pl.col("step") + 7, ms=1, latency=2)
    sentence = refusal(table, tmp_path)
    assert "the column of the worker is not found" in sentence
    assert "the column of the duration could be ms or latency" in sentence
    assert "the column of the round could be step or iteration" in sentence
    sentence = refusal(table, tmp_path, worker="who", duration="y", round="z")
    assert "there is no column 'y' for the duration" in sentence
    assert "there is no column 'z' for the round" in sentence


def test_steps_that_are_no_whole_numbers_are_refused_and_whole_floats_are_read(tmp_path):
    times = own_times()
    table = long_table(times)
    floats = table.with_columns(pl.col("step").cast(pl.Float64))
    assert read(floats, tmp_path).steps[:2] == ["0", "1"]
    halves = table.with_columns(pl.col("step") / 2)
    assert "each round must be an integer; data row 5 has '0.5'" in refusal(halves, tmp_path)


@pytest.mark.parametrize("name", ["startup_ms", "queue_ms", "latency (ms)", "transfer_time_ms"])
def test_a_time_before_the_first_task_is_the_latency_of_a_share(name, tmp_path):
    work = own_times()
    latency = 0.05 * own_times(seed=1, slow=2)
    table = long_table(work).rename({"seconds": "compute_s"})
    frame = table.with_columns(pl.Series(name, 1e3 * latency.ravel()))
    log = read(shuffled(frame), tmp_path)
    np.testing.assert_allclose(log.latency, latency)
    np.testing.assert_allclose(log.seconds, work + latency)
    np.testing.assert_allclose(log.work, work)
    assert log.part(slice(3)).latency.shape == (3, 4)
    assert any(remark.startswith(f"{name} counts as the latency") for remark in log.remarks)
    # the columns that the caller names are those that count
    named = read(frame, tmp_path, duration="compute_s")
    assert named.latency is None
    np.testing.assert_allclose(named.seconds, work)


def test_whether_a_whole_holds_the_latency_is_asked_for(tmp_path):
    work = own_times()
    table = long_table(work).rename({"seconds": "step_time_s"})
    frame = table.with_columns(startup_s=pl.Series(0.05 * own_times(seed=1).ravel()))
    assert "could be step_time_s or startup_s" in refusal(frame, tmp_path)
    log = read(frame, tmp_path, duration="step_time_s,startup_s")
    np.testing.assert_allclose(log.latency, 0.05 * own_times(seed=1))
    assert read(frame, tmp_path, duration="step_time_s").latency is None


def test_parts_that_each_wait_in_a_queue_have_no_latency_of_a_share(tmp_path):
    """Two rows for each worker and step: what is paid for each is a part of its time."""
    work = own_times()
    table = long_table(work).rename({"seconds": "compute_s"}).with_columns(queue_s=pl.lit(0.02))
    second = table.with_columns(pl.col("compute_s") * 1.1, op=pl.lit("backward"))
    frame = pl.concat([table.with_columns(op=pl.lit("forward")), second])
    log = read(frame, tmp_path, where={"op": ["forward", "backward"]})
    assert log.latency is None
    np.testing.assert_allclose(log.seconds, 2.1 * work + 0.04)


def test_the_latency_is_a_part_of_the_sum_that_is_proposed(tmp_path):
    halves = 0.5 * own_times()
    table = long_table(halves).rename({"seconds": "forward_s"})
    frame = table.with_columns(backward_s=pl.col("forward_s"), startup_s=pl.lit(0.02))
    sentence = refusal(frame, tmp_path)
    assert "forward_s,backward_s,startup_s adds these up" in sentence
    log = read(frame, tmp_path, duration="forward_s,backward_s,startup_s")
    np.testing.assert_allclose(log.latency, 0.02)
    np.testing.assert_allclose(log.work, own_times())


# rates


@pytest.mark.parametrize(
    "name", ["samples_per_sec", "tokens/s", "throughput", "it/s", "samplesPerSecond", "TFLOP/s/GPU"]
)
def test_a_rate_is_no_time_also_where_it_is_named(name, tmp_path):
    times = own_times()
    table = long_table(times).with_columns((1.0 / pl.col("seconds")).alias(name)).drop("seconds")
    # the slowest worker has the lowest rate, and would look the fastest
    for options in ({}, {"duration": name}):
        sentence = refusal(table, tmp_path, **options)
        assert f"{name} is a rate and no time: record the time" in sentence
    beside = long_table(times).with_columns((1.0 / pl.col("seconds")).alias(name))
    assert_times(read(beside, tmp_path), times)


# how much work a share is, and where it was done


@pytest.mark.parametrize("name", ["batch_size", "Num Samples", "examples"])
def test_unequal_shares_are_those_of_the_column_that_says_so(name, tmp_path):
    times = own_times()
    sizes = np.array([8, 16, 8, 4])
    table = long_table(times, **{name: lambda _, worker: sizes[worker]})
    log = read(shuffled(table), tmp_path)
    assert_times(log, times)
    np.testing.assert_array_equal(log.tasks, np.tile(sizes, (len(times), 1)))
    (remark,) = log.remarks
    assert remark == f"{name} differs between workers, and says how much work each has in a step."
    halves = pl.concat([table, table]).with_columns(pl.col("seconds") / 2, pl.col(name) // 2)
    log = read(halves.sort("step", "rank"), tmp_path)
    assert_times(log, times)
    np.testing.assert_array_equal(log.tasks[0], sizes)


@pytest.mark.parametrize(
    "sizes",
    [
        lambda step, worker: 64 + 0 * (step + worker),
        lambda step, worker: 64 + step % 3 + 0 * worker,
        lambda step, worker: (1 + step) * (8 + worker),
        lambda step, worker: (1 + step % 6) * (8 + worker),
        lambda step, worker: worker * (step % 5),
    ],
    ids=["of all", "of the step", "so far", "so far in an epoch", "with zeros"],
)
def test_a_count_that_tells_no_shares_changes_nothing(sizes, tmp_path):
    times = own_times()
    log = read(long_table(times, batch_size=sizes), tmp_path)
    assert_times(log, times)
    assert (log.tasks == 1).all()
    assert not log.remarks


@pytest.mark.parametrize("factor", [0, 1])
def test_rows_of_several_kinds_are_of_the_same_work(factor, tmp_path):
    times = own_times()
    size = {"batch_size": lambda step, worker: 8 + factor * worker + 0 * step}
    kinds = ["forward", "backward", "saving"]
    parts = [long_table(times, **size).with_columns(op=pl.lit(kind)) for kind in kinds]
    # one worker saves for all
    parts[2] = parts[2].filter(pl.col("rank") == 0)
    table = pl.concat(parts).sort("step", "rank", maintain_order=True)
    log = read(table, tmp_path, where={"op": kinds})
    relative = log.tasks / log.tasks[0, 0]
    np.testing.assert_allclose(relative, np.tile(1 + factor * np.arange(4) / 8, (len(times), 1)))


def test_a_row_that_is_there_twice_is_no_larger_share(tmp_path):
    size = {"batch_size": lambda step, worker: 8 + 0 * (step + worker)}
    table = long_table(own_times(), **size)
    twice = pl.concat([table[:21], table[20:]])
    sentence = refusal(twice.drop("batch_size"), tmp_path)
    assert refusal(twice, tmp_path) == sentence


def test_two_sizes_that_contradict_each_other_are_refused(tmp_path):
    table = long_table(
        own_times(), samples=lambda _, worker: 1 + worker, batch_size=lambda _, worker: 9 - worker
    )
    sentence = refusal(table, tmp_path)
    assert "samples and batch_size say different things" in sentence
    product = (pl.col("samples") * pl.col("batch_size")).alias("samples")
    followed = table.with_columns(product).drop("batch_size")
    assert (read(followed, tmp_path).tasks[0] == [9, 16, 21, 24]).all()
    assert (read(table.drop("samples"), tmp_path).tasks[0] == [9, 8, 7, 6]).all()


def test_ranks_that_moved_to_other_hosts_are_said(tmp_path):
    times = own_times()
    moved = {"host": lambda step, worker: (worker + (step >= 15)) % 4}
    table = long_table(times, **moved).with_columns(pl.format("h{}", "host").alias("host"))
    log = read(table, tmp_path)
    assert_times(log, times)
    (remark,) = log.remarks
    assert remark.startswith("4 of 4 workers were on several hosts, such as worker 0 on h0 and h1")
    assert [*read(table, tmp_path, worker="host").workers] == ["h0", "h1", "h2", "h3"]
    assert not read(table.filter(pl.col("step") < 15), tmp_path).remarks
    # an empty entry is no host
    fixed = long_table(times, host=lambda _, worker: worker)
    late = pl.when(pl.col("step") > 2).then(pl.format("h{}", "host")).alias("host")
    assert not read(fixed.with_columns(late), tmp_path).remarks
