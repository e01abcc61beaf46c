import hashlib
import random
import shutil
import subprocess
import sys
import time
import types

import gymnasium as gym
import polars as pl
import pytest
import torch
from typer.testing import CliRunner

import ata_policies
from ata_gym.bench.experiment.store import open_folder
from ata_gym.cli import app
from ata_gym.training import Trainer, checkpoint, make_problem
from ata_gym.training.devices.device import enough_memory
from ata_gym.training.studies.trajectory import deterministic, train_once

ROUNDS = 40


def train(out, *more, policies="ofta,uta,gta", rounds=ROUNDS):
    arguments = ["train", "--scenario", "icml2025-regret", "--out", str(out), "--policies", policies]
    return CliRunner().invoke(app, [*arguments, "--rounds", str(rounds), *map(str, more)])


def contents(out):
    files = sorted(file for file in out.rglob("*") if file.is_file() and file.name != "timings.json")
    return {str(file.relative_to(out)): hashlib.sha256(file.read_bytes()).hexdigest() for file in files}


@pytest.fixture
def steps(monkeypatch):
    """Count the optimiser steps that are taken, and stop at a chosen one."""
    counter, step = types.SimpleNamespace(taken=0, stop_at=None), Trainer.step

    def counted(self):
        counter.taken += 1
        if counter.taken == counter.stop_at:
            raise KeyboardInterrupt
        return step(self)

    monkeypatch.setattr(Trainer, "step", counted)
    return counter


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    out = tmp_path_factory.mktemp("finished") / "results"
    result = train(out)
    assert result.exit_code == 0, result.output
    return out, result


def test_tables_pictures_and_the_trajectory_are_left(finished):
    out, result = finished
    assert {"training.parquet", "table.md", "table.csv", "plots/loss.png", "plots/loss.svg"} <= contents(out).keys()
    for words in ("digits to loss", "on icml2025-regret: n = 20, B = 5", "ofta", "uta", "gta", "accuracy", "pictures:"):
        assert words in result.stdout
    assert "nan" not in result.stdout


def test_the_trajectory_is_that_of_a_trainer(finished):
    trajectory = pl.read_parquet(finished[0] / "training.parquet")
    assert trajectory.columns == ["round", "loss", "test_loss", "accuracy"]
    assert trajectory["round"].to_list() == list(range(ROUNDS + 1))
    trainer = Trainer("digits", 5)
    with deterministic():
        assert trajectory["loss"].to_list() == [None, *(trainer.step() for _ in range(ROUNDS))]
        assert trajectory["accuracy"][-1] == trainer.evaluate()["accuracy"]
    assert trajectory["accuracy"].null_count() == 0


@pytest.mark.parametrize("policy", ["uta", "gta"])
def test_the_clock_is_that_of_the_env(finished, policy):
    records = pl.read_parquet(finished[0] / "results" / f"{policy}.parquet")
    env = gym.make(ata_policies.load(policy).env_id, scenario="icml2025-regret")
    player = ata_policies.make(policy, env)
    observation, _ = env.reset(seed=0)
    state, runtimes = None, {}
    for k in range(1, ROUNDS + 1):
        allocation, state = player.predict(observation, state)
        observation, *_, info = env.step(allocation)
        runtimes[k] = info["runtime"]
    assert records["runtime"].to_list() == [runtimes[k] for k in records["round"]]
    assert len(records) > ROUNDS / 2


def test_the_model_is_trained_once_for_all_policies(tmp_path, steps):
    assert train(tmp_path).exit_code == 0
    assert steps.taken == ROUNDS
    again = train(tmp_path, policies="ofta,uta,gta,ata-icml")
    assert again.exit_code == 0
    assert "ata-icml" in again.stdout
    assert steps.taken == ROUNDS


def test_the_same_command_gives_the_same_bytes(tmp_path, finished):
    torch.manual_seed(5)
    assert train(tmp_path / "again").exit_code == 0
    assert contents(tmp_path / "again") == contents(finished[0])
    assert train(tmp_path / "other", "--seed", 1).exit_code == 0
    assert contents(tmp_path / "other")["training.parquet"] != contents(finished[0])["training.parquet"]


def test_a_stopped_run_started_again_ends_the_same(tmp_path, finished, steps):
    out = tmp_path / "results"
    for stop_at in (15, 15):
        steps.taken, steps.stop_at = 0, stop_at
        assert train(out, "--save-every", 0).exit_code == 130
        assert not (out / "training.parquet").exists()
    steps.taken, steps.stop_at = 0, None
    assert train(out).exit_code == 0
    assert steps.taken == ROUNDS - 28  # no step is taken twice
    assert contents(out) == contents(finished[0])
    assert not list((out / "checkpoints").iterdir())


def test_a_run_killed_at_a_random_moment_ends_the_same(tmp_path):
    rounds, generator = 400, random.Random()
    options = ("--save-every", "0.05", "--optimizer", "adamw", "--schedule", f"cosine:{rounds}", "--micro-batch", "2")
    assert train(tmp_path / "alone", *options, policies="ofta", rounds=rounds).exit_code == 0
    killed = tmp_path / "killed"
    command = [sys.executable, "-m", "ata_gym", "train", "--scenario", "icml2025-regret", "--out", str(killed)]
    process = subprocess.Popen([*command, "--policies", "ofta", "--rounds", str(rounds), *options])
    while process.poll() is None and not (killed / "checkpoints" / "training.pt").exists():
        time.sleep(0.01)
    wait = generator.uniform(0, 0.5)
    time.sleep(wait)
    process.kill()
    process.wait()
    assert train(killed, *options, policies="ofta", rounds=rounds).exit_code == 0
    assert contents(killed) == contents(tmp_path / "alone"), f"killed {wait} s after its first checkpoint"


def test_final_weights(finished):
    kept = checkpoint.load(finished[0] / "weights.pt")
    trainer = Trainer("digits", 5)
    with deterministic():
        for _ in range(ROUNDS):
            trainer.step()
    assert all(torch.equal(kept[name], part) for name, part in trainer.model.state_dict().items())
    trainer.model.load_state_dict(kept)


def scalars(out):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(out / "tensorboard"), {"scalars": 0})
    log.Reload()
    return {name: {point.step: point.value for point in log.Scalars(name)} for name in log.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_the_whole_run_once(tmp_path, steps, finished):
    steps.stop_at = 15
    assert train(tmp_path, "--tensorboard", "--save-every", 0).exit_code == 130
    assert sorted(scalars(tmp_path)["loss"]) == list(range(1, 15))
    steps.stop_at = None
    for _ in range(2):  # the second time, all is there
        assert train(tmp_path, "--tensorboard").exit_code == 0
        trajectory = pl.read_parquet(finished[0] / "training.parquet")
        shown = scalars(tmp_path)
        assert sorted(shown) == ["accuracy", "loss", "test_loss"]
        for name, points in shown.items():
            recorded = trajectory.drop_nulls(name)
            assert points.keys() == set(recorded["round"])
            assert [points[k] for k in recorded["round"]] == pytest.approx(recorded[name].to_list(), rel=1e-6)
        assert len(list((tmp_path / "tensorboard").iterdir())) == 1


@pytest.mark.parametrize(
    ("arguments", "difference"),
    [
        (("--lr", 0.2), "lr is 0.05 there and 0.2 here"),
        (("--optimizer", "adam"), 'optimizer is "sgd" there and "adam" here, lr is 0.05 there and 0.003 here'),
        (("--seed", 3), "seed is 0 there and 3 here"),
    ],
)
def test_a_changed_configuration_is_refused(finished, arguments, difference):
    before = contents(finished[0])
    result = train(finished[0], *arguments)
    assert result.exit_code == 2
    assert difference in result.stderr
    assert contents(finished[0]) == before


def test_a_damaged_trajectory(tmp_path):
    assert train(tmp_path, policies="ofta").exit_code == 0
    (tmp_path / "training.parquet").write_bytes(b"no parquet")
    result = train(tmp_path, policies="ofta")
    assert result.exit_code == 2
    assert "training.parquet cannot be read: delete it" in result.stderr


def exploding():
    problem = make_problem("digits")
    loss = problem.loss
    problem.loss = lambda model, batch: loss(model, batch) * 1e30
    problem.name = "exploding"
    return problem


def test_a_loss_that_is_not_finite_is_one_sentence(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "mine", types.SimpleNamespace(exploding=exploding))
    result = train(tmp_path, "--problem", "mine:exploding", "--lr", 1.0)
    assert result.exit_code == 2
    assert "the training loss is" in result.stderr
    assert "lower lr" in result.stderr
    assert "rounds 0 to" in result.stderr
    assert (tmp_path / "checkpoints" / "training.pt").exists()


def test_memory_that_is_not_enough_is_one_sentence(tmp_path, monkeypatch, finished):
    shutil.copytree(finished[0], tmp_path / "results")

    def step(self):
        with enough_memory(self.device, "round 1"):
            torch.empty(10**16)

    monkeypatch.setattr(Trainer, "step", step)
    result = train(tmp_path / "other")
    assert result.exit_code == 2
    assert "round 1 does not fit into the memory of cpu" in result.stderr
    assert "goes on from the last checkpoint" in result.stderr
    assert train(tmp_path / "results").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--problem", "digit"), "did you mean digits"),
        (("--problem", "cifar100"), "the problem 'cifar100' needs data"),
        (("--problem", "cifar100", "--data", "none.npz"), "there is no file none.npz"),
        (("--optimizer", "lion"), "optimizer must be 'sgd', 'momentum', 'adam', 'adamw'"),
        (("--lr", "-1"), "lr must be a finite number above 0"),
        (("--seed", "-1"), "seed must be a whole number"),
        (("--rounds", "0"), "rounds must be a whole number"),
        (("--device", "abacus"), 'device must be "cpu"'),
        (("--schedule", "cosine"), "schedule must be"),
        (("--micro-batch", "0"), "micro_batch must be a whole number"),
        (("--precision", "half"), "precision must be"),
        (("--graphs",), "graphs=True needs a CUDA device"),
        (("--save-every", "nan"), "save-every must be at least 0 seconds"),
        (("--problem", "torch:math:pi"), "there is no problem 'math:pi': it is no function"),
        (("--policies", "ofta,utta"), "there is no policy 'utta'"),
        (("--policies", ","), "name at least one policy"),
        (("--scenario", "icml"), "there is no scenario 'icml'"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, arguments, sentence):
    result = train(tmp_path / "results", *arguments)
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert "Traceback" not in result.output
    assert not (tmp_path / "results").exists()


def test_a_single_round(tmp_path):
    assert train(tmp_path, rounds=1).exit_code == 0


def test_the_papers_network_on_real_images(tmp_path, shared_data):
    data = shared_data / "cifar100_sub_50x15.npz"
    result = train(tmp_path, "--problem", "cifar100", "--data", data, policies="ofta", rounds=3)
    assert result.exit_code == 0, result.output
    assert "cifar100 to loss 4.6" in result.stdout
    config = (tmp_path / "config.json").read_text()
    assert str(shared_data) not in config
    assert '"optimizer": "adam"' in config


def test_determinism_ends_where_it_should():
    def modes():
        return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()

    before, within = modes(), []
    with pytest.raises(ZeroDivisionError), deterministic():
        within.append(modes()) or 1 / 0
    assert within == [(1, True)]
    assert modes() == before


def test_evaluations_are_spread_over_the_rounds(tmp_path):
    trajectory = train_once(Trainer("digits", 1), 130, open_folder(tmp_path, {}))
    evaluated = trajectory.filter(pl.col("accuracy").is_not_null())["round"].to_list()
    assert evaluated == list(range(0, 131, 2))
