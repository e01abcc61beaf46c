import os
import signal
import sys
import types
from contextlib import nullcontext

import gymnasium as gym
import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner.jobs import USUAL
from ata_gym.bench.runner.study import play
from ata_gym.bench.studies.training.separate import study as separate
from ata_gym.bench.studies.training.separate.study import MEASURED, SeparateTrainings
from ata_gym.bench.studies.training.trajectory import Training
from ata_gym.cli import app
from ata_gym.pools import trace
from ata_gym.training import Trainer, TrainingWrapper, make_problem

ROUNDS = 8
BUDGET = 5
WORKERS = "cpu:1,cpu:2,cpu"
POLICIES = ["ofta", "ata", "gta"]


def train(out, policies=POLICIES, trainer=None, workers=WORKERS, progress=None, **more):
    price = more.pop("price", 0.0)
    problem = more.pop("problem", "digits")
    experiment = Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1, price=price)
    training = Training(problem, trainer or Trainer("digits", BUDGET))
    study = SeparateTrainings(dict.fromkeys(policies), experiment, training, workers)
    with pytest.MonkeyPatch.context() as patch:
        if progress is not None:
            patch.setattr(separate, "progress_bars", lambda _: nullcontext(progress))
        return play(study, out, USUAL._replace(**more), ["again"])


def records(out, policy):
    return pl.read_parquet(out / "results" / f"{policy}.parquet")


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """A whole training: its folder and its report; the steps that it told, the pools of its envs,
    its checkpoints.
    """
    out = tmp_path_factory.mktemp("done") / "results"
    told = []
    pools = []
    saved = []
    make = gym.make
    save = TrainingWrapper.save

    def made(env_id, **kwargs):
        pools.append(kwargs["scenario"].pool)
        return make(env_id, **kwargs)

    def kept(env, *args):
        saved.append(env.trainer.round)
        save(env, *args)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gym, "make", made)
        patch.setattr(TrainingWrapper, "save", kept)
        report = train(out, price=0.5, save_every=0.0, progress=lambda *args: told.append(args))
    return out, report, told, pools, saved


def test_each_policy_trains_on_the_same_gradients_and_on_times_of_its_own_and_is_reported(done):
    out, report, told, *_ = done
    reference = Trainer("digits", BUDGET)
    losses = [reference.step() for _ in range(ROUNDS)]
    assert report.table()["policy"].to_list() == POLICIES
    for policy, row in zip(POLICIES, report.table().to_dicts(), strict=True):
        frame = records(out, policy)
        assert frame["round"].to_list() == list(range(1, ROUNDS + 1))
        np.testing.assert_allclose(frame["loss"], losses, rtol=1e-3)
        for clock in ("runtime", "total_worker_time"):
            assert (frame[clock].diff().drop_nulls() > 0).all()
        assert (frame["total_worker_time"] >= frame["runtime"]).all()
        assert frame["accuracy"].null_count() == ROUNDS - 1
        assert frame["accuracy"][-1] == pytest.approx(reference.evaluate()["accuracy"])
        end = frame.row(-1, named=True)
        assert row["runtime"] == end["runtime"]
        assert row["cost"] == pytest.approx(end["runtime"] + 0.5 * end["total_worker_time"])
        assert row["loss"] == end["loss"]  # of so few rounds there is no mean
    assert told == [(policy, k) for policy in POLICIES for k in range(1, ROUNDS + 1)]
    assert not list((out / "checkpoints").iterdir())
    assert "digits on cpu:1, cpu:2, cpu:1: n = 3, B = 5, 8 rounds" in (out / "table.md").read_text()
    assert pl.read_csv(out / "table.csv").columns == report.table().columns
    assert [path.name for path in report.pictures] == ["loss.png", "loss.svg"]


def test_constants_and_oracles_know_the_measured_workers_and_checkpoints_are_made(done):
    out, *_, pools, saved = done
    assert saved == list(range(1, ROUNDS + 1)) * len(POLICIES)
    measured = pl.read_parquet(out / "measured" / "times.parquet")
    assert measured["worker"].to_list() == [0, 1, 2] * MEASURED
    assert (measured["duration"] > 0).all()
    assert pools == [
        trace([measured.filter(worker=i)["duration"].to_list() for i in range(3)]),
    ] * len(POLICIES)


def test_what_is_finished_is_not_done_again(done):
    out = done[0]
    before = {
        path: path.read_bytes()
        for path in (*out.glob("results/*.parquet"), *out.glob("measured/*"))
    }
    told = []
    report = train(
        out,
        [*POLICIES, "thompson"],
        price=0.5,
        progress=lambda *args: told.append(args),
    )
    assert {path: path.read_bytes() for path in before} == before
    assert [k for policy, k in told if policy != "thompson"] == [ROUNDS] * len(POLICIES)
    assert report.table()["policy"].to_list() == [*POLICIES, "thompson"]
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


@pytest.mark.parametrize(
    ("kwargs", "sentence"),
    [
        (
            {"policies": ["dispatch"]},
            "dispatch plays .*TaskDispatch-v0, and real workers run allocations and races",
        ),
        ({"policies": ["nobody"]}, "nobody"),
        ({"trainer": Trainer("quadratic", BUDGET, lr=1e200)}, "loss is inf in round 2"),
    ],
)
def test_bad_input_is_one_sentence(tmp_path, kwargs, sentence):
    with pytest.raises(ValueError, match=sentence):
        train(tmp_path / "out", **kwargs)
    assert not list(tmp_path.glob("out/results/*"))


def test_results_of_other_code_are_refused(tmp_path, monkeypatch):
    source = tmp_path / "my_problem.py"
    options = {"policies": ["uta"], "problem": "my_problem:digits"}
    source.write_text("one = 1\n")
    module = types.SimpleNamespace(__file__=str(source), digits=lambda: make_problem("digits"))
    monkeypatch.setitem(sys.modules, "my_problem", module)
    train(tmp_path / "out", **options)
    source.write_text("one = 2\n")
    with pytest.raises(ValueError, match=r"has changed since the results of .*--rerun-changed"):
        train(tmp_path / "out", **options)
    before = records(tmp_path / "out", "uta")
    train(tmp_path / "out", **options, rerun_changed=True)
    assert not records(tmp_path / "out", "uta")["runtime"].equals(before["runtime"])


def command(out, *more):
    line = [
        "train",
        "--scenario",
        "icml2025-regret",
        "--policies",
        "gta",
        "--rounds",
        "4",
        "--out",
        str(out),
    ]
    return CliRunner().invoke(app, [*line, *more])


def test_the_command_trains_on_real_workers(tmp_path):
    result = command(tmp_path, "--clock", "device", "--workers", WORKERS, "--lr", "0.01")
    for words in (
        "digits on cpu:1, cpu:2, cpu:1: n = 3, B = 5, 4 rounds",
        "gta",
        "as measured",
        "pictures:",
    ):
        assert words in result.stdout
    reference = Trainer("digits", 5, lr=0.01)
    np.testing.assert_allclose(
        records(tmp_path, "gta")["loss"],
        [reference.step() for _ in range(4)],
        rtol=1e-3,
    )


def test_where_data_differ_by_worker_each_policy_and_method_has_its_own_losses(tmp_path):
    line = (
        "train --scenario five-workers --problem heterogeneous --rounds 6 --policies uta,gta"
        " --methods rennala,malenia"
    )
    result = CliRunner().invoke(app, f"{line} --out {tmp_path}".split())
    assert result.exit_code == 0, result.output
    ends = dict(pl.read_csv(tmp_path / "table.csv").select("policy", "suboptimality").iter_rows())
    assert (len(set(ends.values())), ends["gta"]) == (3, pytest.approx(ends["rennala"], rel=1e-9))
    assert CliRunner().invoke(app, f"{line} --out {tmp_path}".split()).stdout == result.stdout
    refused = CliRunner().invoke(app, f"{line} --evaluate-every 2 --out {tmp_path}".split())
    assert "goes without evaluate-every" in refused.stderr


def test_they_are_compared_at_the_lowest_loss_that_all_reach(done):
    out, report, *_ = done
    # another test may have added a policy
    read = bench.read(out).table().filter(pl.col("policy").is_in(POLICIES))
    assert read.equals(report.table())
    (samples,) = report.content.samples.values()
    lowest = max(records(out, policy)["loss"].min() for policy in POLICIES)
    for policy in POLICIES:
        first = records(out, policy).filter(pl.col("loss") <= lowest).row(0, named=True)
        assert samples["runtime"][policy] == [first["runtime"]]
        assert samples["cost"][policy] == [first["runtime"] + 0.5 * first["total_worker_time"]]
    assert "Nothing follows from one seed" in report.compare("gta", "ofta").sentence
    assert "Where each ends" in (out / "report.html").read_text("utf-8")
