import os
import signal
import sys
import types
from contextlib import nullcontext

import gymnasium as gym
import numpy as np
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.jobs import USUAL
from ata_gym.cli import app
from ata_gym.pools import trace
from ata_gym.training import Trainer, TrainingWrapper, make_problem
from ata_gym.training.studies import device_training
from ata_gym.training.studies.device_training import MEASURED, train_on_devices
from ata_gym.training.studies.kept_trajectory import Training

ROUNDS, BUDGET, WORKERS = 8, 5, "cpu:1,cpu:2,cpu"
POLICIES = ["ofta", "ata", "gta"]


def train(out, policies=POLICIES, trainer=None, workers=WORKERS, progress=None, **more):
    price, problem = more.pop("price", 0.0), more.pop("problem", "digits")
    experiment = Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1, price=price)
    training = Training(problem, effort=USUAL._replace(**more))
    with pytest.MonkeyPatch.context() as patch:
        if progress is not None:
            patch.setattr(device_training, "progress_bars", lambda _: nullcontext(progress))
        return train_on_devices(workers, policies, trainer or Trainer("digits", BUDGET), experiment, training, out)


def records(out, policy):
    return pl.read_parquet(out / "results" / f"{policy}.parquet")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    out, told = tmp_path_factory.mktemp("done") / "results", []
    return out, train(out, price=0.5, progress=lambda *args: told.append(args)), told


def test_each_policy_trains_on_the_same_gradients_and_on_times_of_its_own_and_is_reported(done):
    out, _, told = done
    reference = Trainer("digits", BUDGET)
    losses = [reference.step() for _ in range(ROUNDS)]
    for policy in POLICIES:
        frame = records(out, policy)
        assert frame["round"].to_list() == list(range(1, ROUNDS + 1))
        np.testing.assert_allclose(frame["loss"], losses, rtol=1e-3)
        for clock in ("runtime", "total_worker_time"):
            assert (frame[clock].diff().drop_nulls() > 0).all()
        assert (frame["total_worker_time"] >= frame["runtime"]).all()
        assert frame["accuracy"].null_count() == ROUNDS - 1
        assert frame["accuracy"][-1] == pytest.approx(reference.evaluate()["accuracy"])
    assert told == [(policy, k) for policy in POLICIES for k in range(1, ROUNDS + 1)]
    assert not list((out / "checkpoints").iterdir())

    report = done[1]
    assert report.summary["policy"].to_list() == POLICIES
    for row in report.summary.to_dicts():
        end = records(out, row["policy"]).row(-1, named=True)
        assert row["runtime"] == end["runtime"]
        assert row["cost"] == pytest.approx(end["runtime"] + 0.5 * end["total_worker_time"])
        assert row["loss"] == end["loss"]  # of so few rounds there is no mean
    assert "digits on cpu:1, cpu:2, cpu:1: B = 5, 8 rounds" in (out / "table.md").read_text()
    assert pl.read_csv(out / "table.csv").columns == report.summary.columns
    assert [path.name for path in report.pictures] == ["loss.png", "loss.svg"]


def test_constants_and_oracles_know_the_measured_workers_and_checkpoints_are_made(done, monkeypatch, tmp_path):
    measured = pl.read_parquet(done[0] / "measured" / "times.parquet")
    assert measured["worker"].to_list() == [0, 1, 2] * MEASURED
    assert (measured["duration"] > 0).all()
    pools, make = [], gym.make

    def watched(env_id, **kwargs):
        pools.append(kwargs["scenario"].pool)
        return make(env_id, **kwargs)

    monkeypatch.setattr(gym, "make", watched)
    saved, save = [], TrainingWrapper.save
    monkeypatch.setattr(
        TrainingWrapper, "save", lambda self, *args: saved.append(self.trainer.round) or save(self, *args)
    )
    train(tmp_path / "out", ["ofta"], save_every=0.0)
    assert saved == list(range(1, ROUNDS + 1))
    own = pl.read_parquet(tmp_path / "out" / "measured" / "times.parquet")
    assert pools == [trace([own.filter(worker=i)["duration"].to_list() for i in range(3)])]


def test_what_is_finished_is_not_done_again(done):
    out = done[0]
    before = {path: path.read_bytes() for path in (*out.glob("results/*.parquet"), *out.glob("measured/*"))}
    told = []
    report = train(out, [*POLICIES, "thompson"], price=0.5, progress=lambda *args: told.append(args))
    assert {path: path.read_bytes() for path in before} == before
    assert [k for policy, k in told if policy != "thompson"] == [ROUNDS] * len(POLICIES)
    assert report.summary["policy"].to_list() == [*POLICIES, "thompson"]
    with pytest.raises(ValueError, match="another configuration: workers is"):
        train(out, workers="cpu,cpu,cpu", price=0.5)


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_a_stopped_run_goes_on_where_it_was(tmp_path, done):
    played = []

    def interrupted(policy, k):
        played.append((policy, k))
        if (policy, k) in {("ata", 3), ("ata", 5)}:
            os.kill(os.getpid(), signal.SIGINT)

    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            train(tmp_path, progress=interrupted)
        assert not (tmp_path / "results" / "ata.parquet").exists()
    train(tmp_path, progress=interrupted)
    assert [k for policy, k in played if policy == "ata"] == list(range(1, ROUNDS + 1))
    for policy in POLICIES:
        assert records(tmp_path, policy)["loss"].equals(records(done[0], policy)["loss"])
    assert (records(tmp_path, "ata")["runtime"].diff().drop_nulls() > 0).all()


def failing(value):
    problem = make_problem("digits")
    loss = problem.loss
    problem.loss = lambda model, batch: loss(model, batch) * value
    return problem


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        (
            {"policies": ["dispatch"]},
            "dispatch plays .*TaskDispatch-v0, and real workers run allocations and races",
        ),
        ({"policies": ["nobody"]}, "nobody"),
        ({"trainer": lambda: Trainer(failing(float("nan")), BUDGET)}, "loss is nan in round 1"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, kwargs, sentence):
    if "trainer" in kwargs:
        kwargs = kwargs | {"trainer": kwargs["trainer"]()}
    with pytest.raises(ValueError, match=sentence):
        train(tmp_path / "out", **kwargs)
    assert not list(tmp_path.rglob("*.parquet"))


def test_results_of_other_code_are_refused(tmp_path, monkeypatch):
    module = types.ModuleType("mine")
    (tmp_path / "mine.py").write_text("one = 1\n")
    module.__file__ = str(tmp_path / "mine.py")
    module.digits = lambda: make_problem("digits")
    monkeypatch.setitem(sys.modules, "mine", module)
    options = {"policies": ["uta"], "problem": "mine:digits"}
    train(tmp_path / "out", **options)
    (tmp_path / "mine.py").write_text("one = 2\n")
    with pytest.raises(ValueError, match=r"has changed since the results of .*--rerun-changed"):
        train(tmp_path / "out", **options)
    before = records(tmp_path / "out", "uta")
    train(tmp_path / "out", **options, rerun_changed=True)
    assert not records(tmp_path / "out", "uta")["runtime"].equals(before["runtime"])


def command(out, *more):
    line = ["train", "--scenario", "icml2025-regret", "--policies", "gta", "--rounds", "4", "--out", str(out)]
    return CliRunner().invoke(app, [*line, *more])


def test_the_command_trains_on_real_workers(tmp_path):
    result = command(tmp_path, "--clock", "device", "--workers", WORKERS, "--lr", "0.01")
    assert result.exit_code == 0, result.output
    for words in ("digits on cpu:1, cpu:2, cpu:1: B = 5, 4 rounds", "gta", "as measured", "pictures:"):
        assert words in result.stdout
    reference = Trainer("digits", 5, lr=0.01)
    np.testing.assert_allclose(records(tmp_path, "gta")["loss"], [reference.step() for _ in range(4)], rtol=1e-3)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--clock", "wall"), "--clock must be pool or device, not 'wall'"),
        (("--clock", "device"), "--clock device and --workers go together"),
        (("--workers", "cpu"), "--clock device and --workers go together"),
        (("--clock", "device", "--workers", "cpu", "--methods", "rennala"), "--clock device goes without --methods"),
        (("--clock", "device", "--workers", "cpu", "--compile"), "leave out compile=... and graphs=..."),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_options_that_do_not_fit(tmp_path, refused, options, sentence):
    refused(command(tmp_path / "out", *options), sentence)
    assert not (tmp_path / "out").exists()


@pytest.mark.gpu
def test_a_gpu_and_a_cpu_train_together(tmp_path, record_property):
    report = train(tmp_path, workers="cuda:0,cpu", trainer=Trainer("digits", BUDGET, device="cuda"))
    for row in report.summary.to_dicts():
        record_property(f"{row['policy']} (s)", f"{row['runtime']:.3g}")
    assert torch.isfinite(torch.tensor(report.summary["loss"].to_list())).all()
