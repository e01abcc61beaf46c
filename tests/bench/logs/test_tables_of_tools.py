"""Tables as tools and scripts write them: the right times, or a sentence with the cure."""

import json

import numpy as np
import polars as pl
import pytest

from ata_gym.bench.logs import read_log

STEPS = 30
N = 4


def own_times(seed=0, slow=2, noise=0.04):
    """(steps, workers) times of which one worker's are half as long again."""
    times = 0.2 * np.random.default_rng(seed).gamma(noise**-2, noise**2, (STEPS, N))
    times[:, slow] *= 1.5
    return times


def long_rows(times, **columns):
    """A row for each worker and step; columns are values, or functions of step and worker."""
    return [
        {name: make(s, w) if callable(make) else make for name, make in columns.items()}
        for s in range(len(times))
        for w in range(times.shape[1])
    ]


def keyed(times, **columns):
    return long_rows(times, rank=lambda _s, w: w, step=lambda s, _w: s, **columns)


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    pl.DataFrame(rows, infer_schema_length=None, strict=False).write_csv(path)
    return path


def assert_times(log, times):
    np.testing.assert_allclose(log.seconds, times, rtol=1e-6)


def of_rank(times, rank, name="seconds"):
    return [{"step": s, name: times[s, rank]} for s in range(len(times))]


CLOCKS = ["elapsed_time", "time/train", "total_time", "runtime_s"]


@pytest.mark.parametrize("clock", CLOCKS)
def test_a_time_since_the_start_beside_that_of_a_step_is_a_clock(tmp_path, clock):
    times = own_times()
    rows = keyed(
        times,
        **{clock: lambda s, w: float(times[: s + 1].max(axis=1).sum()) + 0.001 * w},
        step_seconds=lambda s, w: times[s, w],
    )
    assert_times(read_log(write(tmp_path / "a.csv", rows)), times)


def test_a_column_called_time_is_the_step_beside_a_part_of_it(tmp_path):
    times = own_times(seed=1)
    for name in ("data_time", "forward_time"):
        rows = keyed(times, time=lambda s, w: times[s, w], **{name: 0.01})
        with pytest.raises(ValueError, match=rf"{name}") as caught:
            read_log(write(tmp_path / "a.csv", rows))
        assert "--duration-column" in str(caught.value)
        assert_times(read_log(tmp_path / "a.csv", duration="time"), times)


@pytest.mark.parametrize("name", ["data_time", "forward_ms", "bwd_s"])
def test_a_part_of_the_work_alone_is_said(tmp_path, name):
    rows = keyed(own_times(), **{name: lambda s, w: own_times()[s, w]})
    log = read_log(write(tmp_path / "a.csv", rows))
    assert log.remarks == [
        f"{name} is a part of a worker's time in a step; the others are not in this log."
    ]
    assert read_log(tmp_path / "a.csv", duration=name).remarks == []


def test_rows_without_a_time_are_of_something_else(tmp_path):
    times = own_times(seed=2)
    rows = keyed(times, step_time=lambda s, w: times[s, w], val_loss=None)
    rows += [{"rank": w, "step": 9, "step_time": None, "val_loss": 0.5} for w in range(N)]
    log = read_log(write(tmp_path / "a.csv", rows))
    assert_times(log, times)
    assert log.remarks == ["4 rows have no entry of step_time, and are left out."]


@pytest.mark.parametrize("name", ["mean", "total", "MAX"])
def test_rows_over_all_workers_are_of_no_worker(tmp_path, name):
    times = own_times(seed=3)
    rows = keyed(times, seconds=lambda s, w: times[s, w])
    rows = [{**row, "rank": str(row["rank"])} for row in rows]
    rows += [{"rank": name, "step": s, "seconds": float(times[s].mean())} for s in range(STEPS)]
    log = read_log(write(tmp_path / "a.csv", rows))
    assert_times(log, times)
    assert f"30 rows with '{name}' in column 'rank' are left out" in log.remarks[0]


def test_columns_over_all_workers_are_of_no_worker(tmp_path):
    times = own_times(seed=4)
    rows = [
        {
            "epoch": 0,
            "step": s,
            **{f"rank{w}_ms": 1e3 * times[s, w] for w in range(N)},
            "mean_ms": 1e3 * float(times[s].mean()),
            "max_ms": 1e3 * float(times[s].max()),
        }
        for s in range(STEPS)
    ]
    assert_times(read_log(write(tmp_path / "a.csv", rows)), times)
    means = [{f"rank{w}_mean_ms": 1e3 * times[s, w] for w in range(N)} for s in range(STEPS)]
    assert_times(read_log(write(tmp_path / "b.csv", means)), times)


@pytest.mark.parametrize("longer", [0.3, 2.0])
def test_a_second_row_in_some_steps_is_named(tmp_path, longer):
    times = own_times(seed=5)
    rows = keyed(times, seconds=lambda s, w: times[s, w])
    rows += [{"rank": w, "step": s, "seconds": longer} for s in (9, 19) for w in range(N)]
    rows.sort(key=lambda row: row["step"])
    with pytest.raises(ValueError, match=r"2 rows in step 9, and 1 in most.*2 of 30 steps"):
        read_log(write(tmp_path / "a.csv", rows))
    kinds = [{**row, "mode": "val" if row["seconds"] == longer else "train"} for row in rows]
    assert_times(read_log(write(tmp_path / "b.csv", kinds)), times)


def test_tasks_of_a_step_are_said(tmp_path):
    times = own_times(seed=6)
    rows = keyed(times, seconds=lambda s, w: times[s, w] / 2)
    log = read_log(write(tmp_path / "a.csv", [row for row in rows for _ in range(2)]))
    assert_times(log, times)
    assert log.remarks == [
        "Workers have 2 rows in a step: each is taken as one task of equal size."
    ]
    # a figure that is called so is no part of the name of a worker
    scored = [{**row, "rank_loss": 0.1 + k} for row in rows for k in range(2)]
    assert [*read_log(write(tmp_path / "b.csv", scored)).workers] == ["0", "1", "2", "3"]


def test_a_flag_of_waiting_says_which_rows_wait(tmp_path):
    times = own_times(seed=7)
    wait = times.max(axis=1, keepdims=True) - times + 0.01
    rows = keyed(times, is_comm=False, seconds=lambda s, w: times[s, w])
    rows += keyed(times, is_comm=True, seconds=lambda s, w: wait[s, w])
    with pytest.raises(ValueError, match=r"'true' look like waiting.*--where is_comm=false"):
        read_log(write(tmp_path / "a.csv", rows))
    assert_times(read_log(tmp_path / "a.csv", where={"is_comm": ["false"]}), times)


def test_ranks_of_a_grid_name_a_worker_together(tmp_path):
    times = own_times(seed=8)
    rows = long_rows(
        times,
        dp_rank=lambda _s, w: w % 2,
        tp_rank=lambda _s, w: w // 2,
        step=lambda s, _w: s,
        compute_ms=lambda s, w: 1e3 * times[s, w],
    )
    log = read_log(write(tmp_path / "a.csv", rows))
    assert_times(log, times)
    assert [*log.workers] == ["0:0", "0:1", "1:0", "1:1"]


def test_a_file_of_each_machine_with_places_in_it(tmp_path):
    times = own_times(seed=9)
    for host in range(2):
        rows = long_rows(
            times[:, 2 * host : 2 * host + 2],
            local_rank=lambda _s, w: w,
            step=lambda s, _w: s,
            seconds=lambda s, w, host=host: times[s, 2 * host + w],
        )
        write(tmp_path / f"node-{host}.csv", rows)
    log = read_log(tmp_path)
    assert_times(log, times)
    assert [*log.workers] == ["0:0", "0:1", "1:0", "1:1"]
    assert "The hosts are those in the names of the files" in log.remarks[0]


@pytest.mark.parametrize(
    "name", ["attempt_0/{}/stdout.csv", "step_881_{}.csv", "2026-03-01_12-0{}-07_gpu{}.csv"]
)
def test_numbers_after_those_of_a_job_are_ranks(tmp_path, name):
    times = own_times(seed=10)
    for rank in range(N):
        write(tmp_path / name.format(rank, rank), of_rank(times, rank))
    assert_times(read_log(tmp_path), times)


@pytest.mark.parametrize(
    "name", ["metrics_2026-03-0{}.csv", "metrics_2026030{}.csv", "lr_0.{}.csv"]
)
def test_dates_and_settings_tell_no_ranks(tmp_path, name):
    for number in range(1, 5):
        write(tmp_path / name.format(number), of_rank(own_times(), number - 1))
    with pytest.raises(ValueError, match="tell no ranks: name the files rank0"):
        read_log(tmp_path)


def test_the_metrics_of_torchtitan(tmp_path):
    times = own_times(seed=11)
    for rank in range(N):
        records = [
            {
                "step": s + 1,
                "time_metrics/end_to_end(s)": float(times[s].max()) + 0.02,
                "time_metrics/data_loading(s)": 0.004,
                "time_metrics/data_loading(%)": 1.0,
                "fwd_bwd(s)": times[s, rank],
            }
            for s in range(STEPS)
        ]
        path = tmp_path / f"rank_{rank}_metrics.jsonl"
        path.write_text("\n".join(map(json.dumps, records)))
    with pytest.raises(ValueError, match="could be") as caught:
        read_log(tmp_path)
    total = "time_metrics/data_loading(s),fwd_bwd(s)"
    assert f"{total} adds these up" in str(caught.value)
    log = read_log(tmp_path, duration=total)
    assert_times(log, times + 0.004)
    np.testing.assert_allclose(log.rest, 0.016, rtol=1e-6)


@pytest.mark.parametrize(
    ("own", "whole"),
    [
        ("step_time_wo_comm", "step_time"),
        ("iter_no_sync_ms", "iter_ms"),
        ("compute_s", "end_to_end_s"),
    ],
)
def test_a_time_without_communication_is_the_work(tmp_path, own, whole):
    times = own_times(seed=12)
    rows = keyed(
        times,
        **{own: lambda s, w: times[s, w], whole: lambda s, _w: float(times[s].max()) + 0.03},
    )
    log = read_log(write(tmp_path / "a.csv", rows))
    scale = 1e-3 if "ms" in own else 1.0
    assert_times(log, scale * times)
    np.testing.assert_allclose(log.rest, scale * 0.03, rtol=1e-6)


@pytest.mark.parametrize("names", [("SLURM_PROCID", "step"), ("meta.rank", "meta.step")])
def test_the_worker_of_a_launcher_or_of_a_record(tmp_path, names):
    times = own_times(seed=13)
    worker, step = names
    rows = long_rows(
        times,
        **{worker: lambda _s, w: w, step: lambda s, _w: s, "seconds": lambda s, w: times[s, w]},
    )
    assert_times(read_log(write(tmp_path / "a.csv", rows)), times)


def test_a_long_table_with_epochs_is_no_metrics_file_of_lightning(tmp_path):
    times = own_times(seed=14)
    rows = long_rows(
        times,
        **{
            "run.hash": lambda _s, w: f"h{w}",
            "metric": "step_time",
            "epoch": 0,
            "step": lambda s, _w: s,
            "value": lambda s, w: times[s, w],
        },
    )
    with pytest.raises(ValueError, match="column of the worker is not found"):
        read_log(write(tmp_path / "a.csv", rows))
    assert_times(read_log(tmp_path / "a.csv", worker="run.hash"), times)


@pytest.mark.parametrize("noise", [0.003, 0.008])
@pytest.mark.parametrize("seed", range(5))
def test_equal_workers_on_batches_of_several_sizes_are_read_with_a_doubt(tmp_path, noise, seed):
    rng = np.random.default_rng(seed)
    ramp = np.repeat([0.1, 0.2, 0.4], STEPS // 3)[:, None]
    lengths = rng.gamma(10.0, 0.02, (STEPS, 1))
    for common in (ramp, lengths):
        times = common * (1 + noise * rng.normal(size=(STEPS, N)))
        for name in ("seconds", "compute_time"):
            rows = keyed(times, **{name: lambda s, w, times=times: times[s, w]}, loss=0.5)
            log = read_log(write(tmp_path / "a.csv", rows))
            assert_times(log, times)
            assert "either workers are near equal" in log.doubt
            assert log.remarks == []
        # one that is a little slower in all steps would not be so if all waited for it
        times[:, 1] *= 1.025 + noise
        rows = keyed(times, seconds=lambda s, w, times=times: times[s, w])
        assert read_log(write(tmp_path / "a.csv", rows)).doubt == ""
