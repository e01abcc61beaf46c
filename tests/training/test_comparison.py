"""Methods beside the policies, in ``ata-gym train``."""

from __future__ import annotations

import hashlib

import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym import scenario
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import open_folder
from ata_gym.bench.report import style
from ata_gym.cli import app
from ata_gym.training import METHODS, Trainer, run_method
from ata_gym.training.studies import comparison
from ata_gym.training.studies.comparison import MethodChoice
from ata_gym.training.studies.curves import Goal

ROUNDS, BUDGET = 40, 5
RUN = "rennala,ringmaster,minibatch,mindflayer,ringmaster=0.02"


def train(out, *more, methods=RUN):
    arguments = ["train", "--scenario", "icml2025-regret", "--policies", "ofta,gta", "--rounds", str(ROUNDS)]
    return CliRunner().invoke(app, [*arguments, "--out", str(out), "--methods", methods, *map(str, more)])


def contents(out):
    files = sorted(file for file in out.rglob("*") if file.is_file() and file.name != "timings.json")
    return {str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "results"
    result = train(out)
    assert result.exit_code == 0, result.output
    return out, result


@pytest.fixture(scope="module")
def experiment():
    return Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1)


def kept(out, name):
    return pl.read_parquet(out / "methods" / f"{name}.parquet")


def test_rennala_is_gta_in_time_and_the_trainer_in_loss(finished):
    out, _ = finished
    rennala, gta = kept(out, "rennala"), pl.read_parquet(out / "results" / "gta.parquet")
    at = rennala[gta["round"] - 1]
    assert at["update"].to_list() == gta["round"].to_list()
    assert at["runtime"].to_list() == gta["runtime"].to_list()
    assert at["total_worker_time"].to_list() == gta["total_worker_time"].to_list()
    trajectory = pl.read_parquet(out / "training.parquet")
    assert rennala["loss"].to_list() == trajectory["loss"].to_list()[1:]
    assert rennala["accuracy"][-1] == trajectory["accuracy"][-1]
    table = pl.read_csv(out / "table.csv")
    rows = [table.filter(policy=name).drop("policy").rows() for name in ("rennala", "gta")]
    assert rows[0] == rows[1]


@pytest.mark.parametrize(
    ("name", "lr"), [("ringmaster", 0.05 / 10), ("minibatch", 0.05 * 4), ("ringmaster=0.02", 0.02)]
)
def test_a_method_is_its_own_run(finished, name, lr):
    frame = kept(finished[0], name.replace("=", "%3D"))
    run = run_method(
        name.partition("=")[0], scenario("icml2025-regret").pool, "digits", budget=BUDGET, lr=lr, updates=len(frame)
    )
    for column in ("runtime", "total_worker_time", "computed", "used", "loss"):
        assert frame[column].to_list() == getattr(run, column).tolist()


def test_each_ends_with_as_many_gradients_as_the_policies(finished):
    for path in (finished[0] / "methods").iterdir():
        used = pl.read_parquet(path)["used"]
        assert used[-1] >= ROUNDS * BUDGET
        assert used.len() == 1 or used[-2] < ROUNDS * BUDGET


def test_they_are_in_the_tables_and_the_pictures(finished):
    out, result = finished
    for name in RUN.split(","):
        assert result.stdout.count(f"\n {name} ") == 3, name
        assert name in (out / "table.md").read_text()
    assert "each until it has used 40 x 5 gradients" in result.stdout
    assert "-: not reached" in result.stdout
    assert "nan" not in result.stdout


def test_they_take_part_again_without_running_again(finished, monkeypatch):
    out, result = finished
    before = contents(out)
    monkeypatch.setattr(comparison, "MethodRun", None)
    assert train(out).stdout == result.stdout
    assert contents(out) == before


def test_the_same_command_gives_the_same_bytes_however_often_it_is_stopped(finished, tmp_path, monkeypatch):
    def stopped(*_):
        raise KeyboardInterrupt

    assert train(tmp_path, methods="rennala,ringmaster").exit_code == 0
    with monkeypatch.context() as patch:
        patch.setattr(comparison, "write_whole", stopped)
        assert train(tmp_path).exit_code == 130
    assert train(tmp_path).exit_code == 0
    assert contents(tmp_path) == contents(finished[0])


def test_a_method_that_diverges_is_named_after_the_report_on_the_others(tmp_path):
    result = train(tmp_path, methods="minibatch=1e30,rennala")
    assert result.exit_code == 1
    assert "rennala" in result.stdout
    assert "minibatch=1e30: the training loss is" in result.stderr
    assert "another learning rate is given as minibatch=RATE" in result.stderr
    assert not (tmp_path / "methods" / "minibatch%3D1e30.parquet").exists()


def test_the_default_rate_is_in_proportion_to_the_gradients_of_an_update(experiment):
    rates = {name: MethodChoice.parse(name).rate(experiment, 1.0) for name in METHODS}
    assert rates["rennala"] == 1.0
    assert rates["minibatch"] == 20 / BUDGET
    assert rates["ringmaster"] == rates["asgd"] == 0.5 / BUDGET
    assert 1.0 <= rates["mindflayer"] < 2.0
    assert MethodChoice.parse("asgd").rate(experiment, None) is None  # an optimiser's own


def test_what_is_never_reached_is_null(experiment, tmp_path):
    folder = open_folder(tmp_path, experiment.config())
    entry = MethodChoice.parse("mindflayer")
    frame = comparison.run_once(entry, Trainer("quadratic", BUDGET, lr=0.1), experiment, folder)
    assert "suboptimality" in frame.columns
    curves = comparison.lay({entry: frame}, experiment)
    assert curves["round"][-1] == len(frame)
    assert curves["loss"].is_finite().all()
    never, soon = (comparison.reached(curves, Goal(level, 7), 3) for level in (-1.0, 1e9))
    assert never.row(0) == ("mindflayer", 3, 7, None, None)
    assert soon.row(0) == ("mindflayer", 3, 7, curves["runtime"][0], curves["total_worker_time"][0])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--methods", "renala"), "there is no method 'renala'; did you mean rennala"),
        (("--methods", "rennala=fast"), "with a positive learning rate, not 'rennala=fast'"),
        (("--methods", "rennala=0"), "with a positive learning rate, not 'rennala=0'"),
        (("--schedule", "cosine:10"), "--methods goes without --schedule"),
        (("--micro-batch", "2", "--compile"), "--methods goes without --micro-batch, --compile"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, arguments, sentence):
    result = train(tmp_path / "results", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert result.stderr.count("\n") == 1
    assert not (tmp_path / "results").exists()


def test_the_methods_are_listed():
    result = CliRunner().invoke(app, ["methods"])
    assert result.exit_code == 0
    for name, method in METHODS.items():
        assert f" {name} " in result.stdout
        assert method.source.split()[0] in result.stdout


def test_every_method_has_a_line_of_its_own():
    looks = style.lines([*METHODS, "ringmaster=0.1", "gta", "mine"])
    markers = [looks[name]["marker"] for name in METHODS]
    assert len(set(markers)) == len(METHODS)
    assert looks["ringmaster=0.1"] == looks["ringmaster"]
    assert looks["rennala"]["color"] == looks["gta"]["color"]
    assert "marker" not in looks["mine"]
