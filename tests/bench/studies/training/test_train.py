"""``bench.train`` in a notebook, and TensorBoard's scalars."""

import pickle
import sys
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.cli import app
from ata_gym.scenarios import scenario
from ata_gym.utils.extras import MissingExtraError
from ata_policies import AllocationPolicy

ROUNDS = 12


def train(**more):
    options = {"problem": "quadratic", "rounds": ROUNDS, "seeds": 3, **more}
    return bench.train(["ofta", "uta"], "five-workers", **options)


def test_results_are_compared_by_the_time_to_the_loss_and_read_from_the_folder(tmp_path):
    results = train(out=tmp_path)
    assert not results.failures
    ratio = results.table().filter(policy="ofta", quantity="runtime/ofta")["mean"].item()
    assert ratio == 1.0
    uta = results.table().filter(policy="uta", quantity="runtime/ofta")["mean"].item()
    assert results.compare("uta", "ofta").ratio.mean == pytest.approx(uta)
    (samples,) = results.content.samples.values()
    (last,) = {int(results.records["round"].max())}
    assert samples["runtime"]["uta"].shape == (3,)
    at_goal = results.records.filter(policy="uta", round=last)
    assert samples["runtime"]["uta"].tolist() == at_goal["runtime"].to_list()
    trajectory = pl.read_parquet(tmp_path / "training.parquet")
    assert at_goal["loss"].to_list() == [trajectory["loss"][-1]] * 3
    read = bench.read(tmp_path)
    assert read.table().equals(results.table())
    assert read.records.equals(results.records)
    assert pickle.loads(pickle.dumps(read)).table().equals(results.table())
    assert (tmp_path / "report.html").exists()
    assert {"training.parquet", "weights.pt"} <= {file.name for file in results.files}
    assert "bench.train(['ofta', 'uta'], 'five-workers', 'quadratic'" in " ".join(
        read.content.page().command,
    )


@pytest.mark.parametrize("problem", ["quadratic", "heterogeneous"])
def test_a_class_of_this_process_trains_and_its_source_is_kept(tmp_path, problem):
    class First(AllocationPolicy):
        """All tasks for the first worker."""

        def allocate(self, state):
            tasks = np.eye(self.setting.n, dtype=np.int64)[0] * self.setting.budget
            return np.tile(tasks, (len(state.round), 1))

    results = bench.train([First, "ofta"], "five-workers", problem, rounds=4, out=tmp_path)
    assert not results.failures
    times = dict(
        results.records.group_by("policy").agg(pl.col("total_worker_time").max()).iter_rows(),
    )
    assert set(times) == {"First", "ofta"}
    assert "All tasks for the first worker" in (tmp_path / "sources" / "First.py").read_text()
    assert results.compare(First, "ofta").ratio.mean > 1.0


def test_methods_are_named_in_a_text_or_in_a_list():
    texts = [train(seeds=1, methods=methods) for methods in ("rennala, asgd", ["rennala", "asgd"])]
    first, second = (results.table() for results in texts)
    assert first.equals(second)
    assert {"rennala", "asgd"} < {*first["policy"]}


def test_nothing_is_left_without_a_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert len(train(seeds=1).plot("loss").axes) == 2
    assert not list(tmp_path.iterdir())


def test_a_price_counts_in_the_comparison():
    priced = replace(scenario("five-workers"), price=0.5)
    results = bench.train("ofta,uta", priced, "quadratic", rounds=ROUNDS)
    means = dict(
        results.table().filter(policy="uta").select("quantity", "mean").iter_rows(),
    )
    assert means["cost"] == pytest.approx(means["runtime"] + 0.5 * means["total_worker_time"])
    assert "cost" in results.compare("ofta", "uta").sentence


def scalars(folder):
    accumulators = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="tensorboard is not installed",
    )
    log = accumulators.EventAccumulator(str(folder), {"scalars": 0})
    log.Reload()
    return {name: log.Scalars(name) for name in log.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_the_loss_and_both_clocks_of_each_round_and_policy(tmp_path):
    results = train(tensorboard=tmp_path / "board", seeds=2)
    for _ in range(2):  # a second time in place of the first
        for policy in ("ofta", "uta"):
            rows = results.records.filter(policy=policy).group_by("round", maintain_order=True)
            means = rows.agg(pl.col("loss", "runtime", "total_worker_time").mean())
            board = scalars(tmp_path / "board" / policy)
            assert sorted(board) == ["loss", "runtime", "worker_time"]
            columns = {"worker_time": "total_worker_time"}
            for tag, points in board.items():
                values = means[columns.get(tag, tag)].to_list()
                assert [point.step for point in points] == means["round"].to_list()
                assert [point.value for point in points] == pytest.approx(values, rel=1e-6)
                assert [point.wall_time for point in points] == pytest.approx(
                    means["runtime"].to_list(),
                )
        results = train(tensorboard=tmp_path / "board", seeds=2)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_the_command_writes_methods_for_tensorboard_too(tmp_path):
    line = (
        "train --scenario five-workers --problem quadratic --rounds 8 --policies uta --methods"
        f" rennala,asgd=0.1 --out {tmp_path / 'out'} --tensorboard {tmp_path / 'board'}"
    )
    result = CliRunner().invoke(app, line.split())
    assert result.exit_code == 0, result.output
    updates = pl.read_parquet(tmp_path / "out" / "methods" / "asgd%3D0.1.parquet")
    board = scalars(tmp_path / "board" / "asgd%3D0.1")
    shown = {point.step: point.value for point in board["runtime"]}
    times = dict(updates.select("update", "runtime").iter_rows())
    assert shown
    assert shown == pytest.approx({step: times[step] for step in shown}, rel=1e-6)


def test_without_tensorboard_it_says_what_to_install_before_anything_is_trained(
    tmp_path,
    monkeypatch,
):
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    with pytest.raises(
        MissingExtraError, match=r'needs tensorboard: pip install "ata-gym\[train\]"'
    ):
        train(out=tmp_path / "out", tensorboard=tmp_path / "board")
    assert not list(tmp_path.iterdir())


def test_a_setting_that_no_folder_keeps_is_refused(tmp_path):
    with pytest.raises(ValueError, match="there is no setting of a training 'inplace'"):
        train(inplace=True, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
