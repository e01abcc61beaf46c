"""TensorBoard's files, as torch writes them: runs, tags, restarts, and what cannot answer."""

import sys
import time
from pathlib import Path

import numpy as np
import pytest

from ata_gym.bench.logs import read_log, tensorboard
from ata_gym.utils.extras import MissingExtraError

pytest.importorskip("tensorboard", reason="extra logs is not installed")
writers = pytest.importorskip("torch.utils.tensorboard")

TAG = "step_time_s"


def write(folder: Path, values, tag: str = TAG, first: int = 0, **options) -> None:
    """Write a run with a scalar of a tag in steps from the first on."""
    with writers.SummaryWriter(folder) as writer:
        for step, value in enumerate(values, first):
            writer.add_scalar(tag, value, step, **options)


def job(ranks: int = 3, steps: int = 12):
    return (
        np.random.default_rng(3).uniform(0.1, 0.2, (ranks, steps)) * [[1.0], [2.0], [1.1]][:ranks]
    )


def write_job(folder: Path, tag: str = TAG) -> None:
    for rank, values in enumerate(job()):
        write(folder / f"rank_{rank}", values, tag)


@pytest.mark.parametrize(
    "tag",
    ["time/step_s", "perf/iter_time_s", "steptime_s", "train/batch_time_s", "Duration_s"],
)
def test_the_time_of_a_step_is_known_by_its_tag(tag, tmp_path):
    for rank, values in enumerate(job()):
        write(tmp_path / f"rank_{rank}", values, tag)
        for other in ("loss", "lr", "tokens_per_sec", "eval/time", "total_time", "epoch"):
            write(tmp_path / f"rank_{rank}", values, other)
    log = read_log(tmp_path)
    np.testing.assert_allclose(log.seconds.T, job(), rtol=1e-6)
    assert f"The times are the values of the tag {tag!r}." in log.remarks


def test_of_several_times_the_reader_asks_and_takes_the_one_that_is_named(tmp_path):
    for rank, values in enumerate(job()):
        write(tmp_path / f"rank_{rank}", values, "compute_time_s")
        write(tmp_path / f"rank_{rank}", np.ones(12), "step_time_s")
    with pytest.raises(
        ValueError, match="compute_time_s or step_time_s: name it with --duration-column"
    ):
        read_log(tmp_path)
    log = read_log(tmp_path, duration="compute_time_s")
    np.testing.assert_allclose(log.seconds.T, job(), rtol=1e-6)
    with pytest.raises(ValueError, match=r"no scalar has the tag 'x': name one of \['compute_time"):
        read_log(tmp_path, duration="x")


def test_no_time_among_the_tags_is_said_with_the_cure(tmp_path):
    for rank, values in enumerate(job()):
        write(tmp_path / f"rank_{rank}", values, "train/loss")
    with pytest.raises(ValueError, match=r"no tag among \['train/loss'\] .* --duration-column, or"):
        read_log(tmp_path)


def test_all_of_a_long_run_is_read(tmp_path):
    # a reader of TensorBoard keeps a sample of 10,000 unless it is asked for all
    times = np.random.default_rng(0).uniform(0.1, 0.2, (2, 10_100))
    for rank, values in enumerate(times):
        write(tmp_path / f"rank_{rank}", values)
    np.testing.assert_allclose(read_log(tmp_path).seconds.T, times, rtol=1e-6)


@pytest.mark.parametrize(
    "options",
    [{"new_style": True}, {"new_style": True, "double_precision": True}],
)
def test_scalars_that_are_kept_as_tensors_are_read(options, tmp_path):
    for rank, values in enumerate(job()):
        write(tmp_path / f"rank_{rank}", values, **options)
    np.testing.assert_allclose(read_log(tmp_path).seconds.T, job(), rtol=1e-6)


def test_a_run_that_was_started_again_goes_on_in_a_second_file(tmp_path):
    for rank, values in enumerate(job()):
        write(tmp_path / f"rank_{rank}", values[:7])
        write(tmp_path / f"rank_{rank}", values[7:], first=7)
    assert len([*tmp_path.rglob("*tfevents*")]) == 6
    np.testing.assert_allclose(read_log(tmp_path).seconds.T, job(), rtol=1e-6)


def test_processes_that_wrote_one_run_together_are_refused(tmp_path):
    several = [writers.SummaryWriter(tmp_path / "run", filename_suffix=f".{k}") for k in range(3)]
    for step in range(4):
        for writer in several:
            writer.add_scalar(TAG, 0.1, step)
            time.sleep(0.001)
    for writer in several:
        writer.close()
    with pytest.raises(ValueError, match=r"several processes wrote the run 'run' .* for each rank"):
        read_log(tmp_path)


def test_one_run_is_one_worker_and_the_cure_is_a_run_for_each_rank(tmp_path):
    write(tmp_path / "rank_0", job()[0])
    (file,) = tmp_path.rglob("*tfevents*")
    for path in (tmp_path, file):
        with pytest.raises(ValueError, match=r"one worker .* write a run for each rank"):
            read_log(path)
    # a file that cannot be read is named, and does not pass as a smaller job
    write(tmp_path / "rank_1", job()[1])
    (second,) = (tmp_path / "rank_1").iterdir()
    second.write_bytes(b"no events\n" * 50)
    with pytest.raises(ValueError, match=r"in the run 'rank_0', and the runs \['rank_1'\] lack"):
        read_log(tmp_path)


@pytest.mark.parametrize("tag", ["step_time_s/rank{}", "rank{}/step_time_s", "gpu.{}.step_time_s"])
def test_a_run_with_a_tag_for_each_rank_has_all_workers(tag, tmp_path):
    with writers.SummaryWriter(tmp_path) as writer:
        for (rank, step), value in np.ndenumerate(job()):
            writer.add_scalar(tag.format(rank), value, step)
    log = read_log(tmp_path)
    assert list(log.workers) == ["0", "1", "2"]
    np.testing.assert_allclose(log.seconds.T, job(), rtol=1e-6)


def test_scalars_of_one_chart_are_runs(tmp_path):
    with writers.SummaryWriter(tmp_path) as writer:
        for step, values in enumerate(job().T):
            writer.add_scalars(TAG, {f"rank{rank}": one for rank, one in enumerate(values)}, step)
    np.testing.assert_allclose(read_log(tmp_path).seconds.T, job(), rtol=1e-6)


def test_ranks_come_in_the_order_of_their_numbers(tmp_path):
    for rank in range(11):
        write(tmp_path / f"node/rank{rank}", [0.1 + rank, 0.2 + rank, 0.3 + rank])
    log = read_log(tmp_path)
    assert list(log.workers) == [str(rank) for rank in range(11)]
    assert (np.diff(log.seconds, axis=1) > 0.9).all()


def test_ranks_that_have_a_number_twice_keep_the_names_of_their_runs(tmp_path):
    for host in ("node-a", "node-b"):
        for rank in range(2):
            write(tmp_path / host / f"rank{rank}", [0.1 + rank, 0.2, 0.3])
    ranks = [f"node-{host}/rank{rank}" for host in "ab" for rank in range(2)]
    assert list(read_log(tmp_path).workers) == ranks


@pytest.mark.parametrize(
    "runs",
    [
        ("rank{}/version_0", "rank{}/version_1"),
        ("monday/rank{}", "tuesday/rank{}"),
    ],
)
def test_runs_of_the_same_rank_are_of_two_jobs(runs, tmp_path):
    for form in runs:
        for rank in range(2):
            write(tmp_path / form.format(rank), job()[rank])
    with pytest.raises(ValueError, match=r"are both of rank \d.*name the folder of one of them"):
        read_log(tmp_path)


def test_runs_of_the_same_rank_on_two_machines_are_two_workers(tmp_path):
    for number, run in enumerate(("hostA/rank0", "hostA/rank1", "hostB/rank0")):
        write(tmp_path / run, job()[number])
    log = read_log(tmp_path)
    np.testing.assert_allclose(log.seconds, np.transpose(job()), rtol=1e-6)


def test_runs_without_the_tag_are_left_out_and_named(tmp_path):
    write_job(tmp_path)
    write(tmp_path / "evaluation", [1.0, 2.0], "accuracy")
    log = read_log(tmp_path)
    assert len(log.workers) == 3
    assert f"Runs without the tag {TAG!r} are left out: ['evaluation']." in log.remarks


def test_dates_are_no_durations(tmp_path):
    for rank in range(2):
        write(tmp_path / f"rank_{rank}", 1.7e9 + 100.0 * np.arange(9), "time/step")
    with pytest.raises(ValueError, match=r"dates in seconds since 1970, .* write the durations"):
        read_log(tmp_path)


def test_a_file_that_was_cut_has_its_first_steps_and_what_is_no_file_of_its_kind_is_refused(
    tmp_path,
):
    write_job(tmp_path)
    cut = sorted(tmp_path.rglob("*tfevents*"))[1]
    content = cut.read_bytes()
    cut.write_bytes(content[: len(content) // 2])
    log = read_log(tmp_path)
    assert 2 <= len(log.seconds) < 12
    np.testing.assert_allclose(log.seconds.T, job()[:, : len(log.seconds)], rtol=1e-6)
    assert any("lack a worker" in one for one in log.remarks)
    for file in tmp_path.rglob("*tfevents*"):
        file.write_bytes(b"no events\n" * 50)
    with pytest.raises(ValueError, match="it holds no scalars: write a run for each rank"):
        read_log(tmp_path)


def test_traces_of_the_profiler_in_the_same_folder_are_read_as_such(tmp_path):
    write(tmp_path, job()[0])
    assert tensorboard.FORMAT.recognises(tmp_path)
    (tmp_path / "host_1.1.pt.trace.json").write_text("{}")
    assert not tensorboard.FORMAT.recognises(tmp_path)


def test_without_tensorboard_the_extra_is_named(tmp_path, monkeypatch):
    write_job(tmp_path)
    for module in [name for name in sys.modules if name.split(".")[0] == "tensorboard"]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(MissingExtraError, match=r'pip install "ata-gym\[logs\]"'):
        read_log(tmp_path)


@pytest.mark.parametrize("tag", ["samples/sec", "global_step/sec", "perf/tokens/s"])
def test_a_rate_is_no_time_of_a_step(tag, tmp_path):
    for rank, values in enumerate(job()):
        write(tmp_path / f"rank_{rank}", 1.0 / values, tag)
    with pytest.raises(ValueError, match=r"no tag among .* is the time of a step"):
        read_log(tmp_path)
    with pytest.raises(ValueError, match=f"{tag} is a rate and no time"):
        read_log(tmp_path, duration=tag)
