import os
import shutil
import signal
import subprocess
import sys
from dataclasses import replace

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ata_gym.bench import progress
from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.run import PolicyRun
from ata_gym.bench.experiment.store import open_folder
from ata_gym.cli import app
from ata_gym.training import Trainer, checkpoint
from ata_gym.training.devices.device import enough_memory
from ata_gym.training.studies.trajectory import deterministic, train_once
from tests.flips import unseen
from tests.waiting import until

ROUNDS = 40


def command(out, *more, policies="ofta,uta,gta", rounds=ROUNDS):
    arguments = ["train", "--scenario", "icml2025-regret", "--out", str(out), "--policies", policies]
    return CliRunner().invoke(app, [*arguments, "--rounds", str(rounds), *map(str, more)])


def test_tables_pictures_and_the_trajectory_are_left(finished, contents):
    out, result = finished
    assert {"training.parquet", "table.md", "table.csv", "plots/loss.png", "plots/loss.svg"} <= contents(out).keys()
    for words in ("digits to loss", "on icml2025-regret: n = 20, B = 5", "ofta", "uta", "gta", "accuracy", "pictures:"):
        assert words in result.stdout
    assert "nan" not in result.stdout


def test_a_flipped_byte_in_any_file_is_named(finished):
    assert unseen(finished[0]) == []


def test_the_trajectory_and_the_final_weights_are_those_of_a_trainer(finished):
    trajectory = pl.read_parquet(finished[0] / "training.parquet")
    assert trajectory.columns == ["round", "loss", "test_loss", "accuracy"]
    assert trajectory["round"].to_list() == list(range(ROUNDS + 1))
    trainer = Trainer("digits", 5)
    with deterministic():
        assert trajectory["loss"].to_list() == [None, *(trainer.step() for _ in range(ROUNDS))]
        assert trajectory["accuracy"][-1] == trainer.evaluate()["accuracy"]
    assert evaluated(trajectory) == [0, 1, 2, 3, 4, 6, 7, 9, 12, 15, 19, 24, 31, 40]
    kept = checkpoint.load(finished[0] / "weights.pt")
    assert all(torch.equal(kept[name], part) for name, part in trainer.model.state_dict().items())
    trainer.model.load_state_dict(kept)


@pytest.mark.parametrize("policy", ["uta", "gta"])
def test_the_clock_is_that_of_the_bench(finished, policy):
    run = PolicyRun(replace(Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1), points=500), policy)
    while run.round < ROUNDS:
        run.play(ROUNDS)
    assert pl.read_parquet(finished[0] / "results" / f"{policy}.parquet").equals(run.results())
    assert len(run.results()) > ROUNDS / 2


def test_a_stopped_run_started_again_ends_with_the_same_bytes(tmp_path, finished, steps, contents):
    out = tmp_path / "results"
    torch.manual_seed(5)
    for stop_at in (15, 15):
        steps.taken, steps.stop_at = 0, stop_at
        assert command(out, "--save-every", 0).exit_code == 130
        assert not (out / "training.parquet").exists()
    steps.taken, steps.stop_at = 0, None
    assert command(out).exit_code == 0
    assert steps.taken == ROUNDS - 28  # no step is taken twice
    assert contents(out) == contents(finished[0])
    assert not list((out / "checkpoints").iterdir())
    assert "ata-icml" in command(out, policies="ofta,uta,gta,ata-icml").stdout
    assert steps.taken == ROUNDS - 28  # nor for another policy


@pytest.mark.skipif(os.name == "nt", reason="needs the signals of POSIX")
def test_ctrl_c_saves_at_once(tmp_path, finished, monkeypatch, contents):
    step = Trainer.step

    def interrupted(self):
        if self.round == 17:
            os.kill(os.getpid(), signal.SIGINT)
        return step(self)

    monkeypatch.setattr(Trainer, "step", interrupted)
    assert command(tmp_path, "--save-every", 1e9).exit_code == 130
    tree = checkpoint.load(tmp_path / "checkpoints" / "training.pt", "losses")
    assert len(tree["losses"]) == 18
    monkeypatch.undo()
    assert command(tmp_path).exit_code == 0
    assert contents(tmp_path) == contents(finished[0])


@pytest.mark.parametrize("which", ["training.pt", "both"])
def test_a_damaged_checkpoint_is_set_aside(tmp_path, finished, steps, contents, which):
    steps.stop_at = 15
    assert command(tmp_path, "--save-every", 0).exit_code == 130
    saved = tmp_path / "checkpoints" / "training.pt"
    for path in [saved] + [saved.with_name("training.pt.previous")] * (which == "both"):
        content = bytearray(path.read_bytes())
        content[len(content) // 2] ^= 1
        path.write_bytes(content)
    steps.taken, steps.stop_at = 0, None
    with pytest.warns(UserWarning, match="damaged"):
        assert command(tmp_path).exit_code == 0
    assert steps.taken == (ROUNDS if which == "both" else ROUNDS - 13)
    for aside in (tmp_path / "checkpoints").glob("*.damaged"):
        aside.unlink()
    assert contents(tmp_path) == contents(finished[0])


def test_a_run_that_is_killed_after_its_second_checkpoint_ends_the_same(tmp_path, contents):
    options = ["--save-every", "0.05", "--optimizer", "adamw", "--schedule", "cosine:400", "--micro-batch", "2"]
    assert command(tmp_path / "alone", *options, policies="ofta", rounds=400).exit_code == 0
    killed = tmp_path / "killed"
    line = f"-m ata_gym train --scenario icml2025-regret --policies ofta --rounds 400 --out {killed}"
    process = subprocess.Popen([sys.executable, *line.split(), *options])
    until(lambda: (killed / "checkpoints" / "training.pt.previous").exists() or process.poll() is not None)
    process.kill()
    process.wait()
    assert command(killed, *options, policies="ofta", rounds=400).exit_code == 0
    assert contents(killed) == contents(tmp_path / "alone")


def scalars(out):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    log = EventAccumulator(str(out / "tensorboard"), {"scalars": 0})
    log.Reload()
    return {name: {point.step: point.value for point in log.Scalars(name)} for name in log.Tags()["scalars"]}


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_shows_the_whole_run_once(tmp_path, steps, finished):
    steps.stop_at = 15
    assert command(tmp_path, "--tensorboard", "--save-every", 0).exit_code == 130
    assert sorted(scalars(tmp_path)["loss"]) == list(range(1, 15))
    steps.stop_at = None
    for _ in range(2):  # the second time, all is there
        assert command(tmp_path, "--tensorboard").exit_code == 0
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
def test_a_changed_configuration_is_refused(finished, arguments, difference, contents, refused):
    before = contents(finished[0])
    refused(command(finished[0], *arguments), difference)
    assert contents(finished[0]) == before


def test_a_damaged_trajectory(tmp_path, finished, refused):
    shutil.copytree(finished[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / "training.parquet").write_bytes(b"no parquet")
    refused(command(tmp_path), "training.parquet is damaged")


def test_a_loss_that_is_not_finite_is_one_sentence(tmp_path, refused):
    result = command(tmp_path, "--problem", "ata_gym.training.problems.quadratic:Quadratic", "--lr", 1e200)
    for part in ("the training loss is", "lower lr", "rounds 0 to"):
        refused(result, part)
    assert (tmp_path / "checkpoints" / "training.pt").exists()


def test_memory_that_is_not_enough_is_one_sentence(tmp_path, monkeypatch, finished, refused):
    def step(self):
        with enough_memory(self.device, "round 1"):
            torch.empty(10**16)

    monkeypatch.setattr(Trainer, "step", step)
    result = command(tmp_path)
    refused(result, "round 1 does not fit into the memory of cpu")
    refused(result, "goes on from the last checkpoint")
    assert command(finished[0]).exit_code == 0


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (("--lr", "1e308"), "lr must be at most 3.4e+38, the largest number that the weights hold, not 1e+308"),
        (("--threads", "100000"), "threads must be at most 1,024, not 100,000"),
        ((), "the problem digits failed: RuntimeError: no power"),
    ],
)
def test_a_training_that_fails_at_its_beginning_does_not_hold_the_folder(
    tmp_path, refused, monkeypatch, option, sentence
):
    def fail(_):
        raise RuntimeError("no power")

    with monkeypatch.context() as patch:
        if not option:
            patch.setattr(Trainer, "step", fail)
        result = command(tmp_path / "results", *option, policies="ofta", rounds=2)
    assert result.stderr.startswith(f"ata-gym: {sentence}")
    refused(result, sentence)
    assert command(tmp_path / "results", "--lr", "0.1", policies="ofta", rounds=2).exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--problem", "digit"), "did you mean digits"),
        (("--problem", "cifar100"), "the problem 'cifar100' needs data"),
        (("--problem", "cifar100", "--data", "none.npz"), "there is no file none.npz"),
        (("--optimizer", "lion"), "optimizer must be 'sgd', 'momentum', 'adam', 'adamw'"),
        (("--lr", "-1"), "lr must be a finite number above 0"),
        (("--seed", "-1"), "seed must be a whole number"),
        (("--threads", "0"), "threads must be a whole number"),
        (("--evaluate-every", "0"), "evaluate-every must be a whole number"),
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
        (("--methods", ","), "name at least one method"),
        (("--scenario", "alibaba-1"), "made of recorded times, which train does not play"),
        (("--lr", "fast"), "--lr must be a positive number or theory, not 'fast'"),
        (("--lr", "theory"), "digits does not say; give a learning rate in place of theory"),
        (("--scenario", "icml"), "there is no scenario 'icml'"),
        (("--methods", "renala"), "there is no method 'renala'; did you mean rennala"),
        (("--methods", "rennala=fast"), "with a positive learning rate, not 'rennala=fast'"),
        (("--methods", "rennala=0"), "with a positive learning rate, not 'rennala=0'"),
        (("--methods", "rennala", "--schedule", "cosine:10"), "--methods goes without --schedule"),
        (("--methods", "asgd", "--micro-batch", "2", "--compile"), "--methods goes without --micro-batch, --compile"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, arguments, sentence, refused):
    refused(command(tmp_path / "results", *arguments), sentence)
    assert not (tmp_path / "results").exists()


def test_a_single_round(tmp_path):
    assert command(tmp_path, rounds=1).exit_code == 0


def test_the_papers_network_on_real_images(tmp_path, shared_data):
    data = shared_data / "cifar100_sub_50x15.npz"
    result = command(tmp_path, "--problem", "cifar100", "--data", data, policies="ofta", rounds=3)
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


def evaluated(trajectory):
    return trajectory.filter(pl.col("accuracy").is_not_null())["round"].to_list()


def test_evaluations_are_few_and_log_spaced_unless_told(tmp_path):
    trajectory = train_once(Trainer("digits", 1), 130, open_folder(tmp_path / "usual", {}))
    assert evaluated(trajectory) == [0, 1, 2, 3, 4, 5, 7, 10, 13, 19, 26, 35, 49, 68, 94, 130]
    trajectory = train_once(Trainer("digits", 1), 130, open_folder(tmp_path / "told", {}), evaluate_every=50)
    assert evaluated(trajectory) == [0, 50, 100, 130]


def test_threads_and_evaluations_belong_to_the_configuration(tmp_path, refused):
    options = ("--evaluate-every", 7, "--threads", 2)
    assert command(tmp_path, *options).exit_code == 0
    assert evaluated(pl.read_parquet(tmp_path / "training.parquet")) == [0, 7, 14, 21, 28, 35, 40]
    refused(command(tmp_path, "--threads", 2), "evaluate_every is 7 there and null here")
    refused(command(tmp_path, "--evaluate-every", 7), "threads is 2 there and 1 here")


def test_progress_is_lines_where_there_is_no_terminal(tmp_path, monkeypatch):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    result = command(tmp_path)
    for words in (f"digits 20 of {ROUNDS}, loss", "uta 2 of 40"):
        assert words in result.stderr
