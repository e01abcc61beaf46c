"""``ata-gym train``: one trajectory for all policies, which is stopped and goes on."""

import json
import os
import shutil
import signal
from dataclasses import replace
from multiprocessing import get_context

import polars as pl
import pytest
import torch
from typer.testing import CliRunner

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.runner import progress
from ata_gym.bench.runner.policy_run import PolicyRun
from ata_gym.bench.store.folder import open_folder
from ata_gym.bench.studies.training.one_trajectory.study import LossStudy
from ata_gym.bench.studies.training.trajectory import train_once
from ata_gym.cli import app
from ata_gym.models import checkpoint
from ata_gym.models.determinism import deterministic
from ata_gym.models.memory import enough_memory
from ata_gym.training import Trainer
from ata_gym.utils.files import manifest
from tests.flips import unseen
from tests.mutated import refused_by_field

ROUNDS = 24


def command(out, *more, policies="ofta,uta,gta", rounds=ROUNDS):
    arguments = [
        "train",
        "--scenario",
        "icml2025-regret",
        "--out",
        str(out),
        "--policies",
        policies,
    ]
    return CliRunner().invoke(app, [*arguments, "--rounds", str(rounds), *map(str, more)])


def trained(folder, save_every=10.0):
    return train_once(Trainer("digits", 5), ROUNDS, open_folder(folder, {}), save_every=save_every)


def same_trajectory(one, other):
    return all(
        (one / name).read_bytes() == (other / name).read_bytes()
        for name in ("training.parquet", "weights.pt")
    )


def evaluated(trajectory):
    return trajectory.filter(pl.col("accuracy").is_not_null())["round"].to_list()


def test_tables_pictures_and_the_trajectory_are_left_and_the_clock_is_that_of_the_bench(
    finished,
    contents,
):
    out, result = finished
    run = PolicyRun(
        replace(Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1), points=500),
        "gta",
    )
    while run.round < ROUNDS:
        run.play(ROUNDS)
    assert pl.read_parquet(out / "results" / "gta.parquet").equals(run.results())
    assert len(run.results()) > ROUNDS / 2
    assert {
        "training.parquet",
        "table.md",
        "table.csv",
        "plots/loss.png",
        "plots/loss.svg",
    } <= contents(out).keys()
    for words in (
        "digits until the loss is",
        "on icml2025-regret: n = 20, B = 5",
        "ofta",
        "uta",
        "gta",
        "accuracy",
        "pictures:",
    ):
        assert words in result.stdout
    assert "nan" not in result.stdout
    assert unseen(out) == []  # a flipped byte in any file is named


def test_clocks_of_several_seeds_have_intervals_and_the_training_is_the_same(finished, tmp_path):
    assert (
        " 3 seeds, mean and 95 % confidence interval"
        in command(tmp_path / "out", "--seeds", 3).stdout
    )
    assert same_trajectory(tmp_path / "out", finished[0])


def test_the_trajectory_and_the_final_weights_are_those_of_a_trainer(finished):
    trajectory = pl.read_parquet(finished[0] / "training.parquet")
    trainer = Trainer("digits", 5)
    assert trajectory.columns == ["round", "loss", "test_loss", "accuracy"]
    assert trajectory["round"].to_list() == list(range(ROUNDS + 1))
    assert evaluated(trajectory) == [0, 1, 2, 3, 4, 5, 7, 8, 10, 13, 16, 19, 24]
    with deterministic():
        assert trajectory["loss"].to_list() == [None, *(trainer.step() for _ in range(ROUNDS))]
        assert trajectory["accuracy"][-1] == trainer.evaluate()["accuracy"]
    kept = checkpoint.load(finished[0] / "weights.pt")
    assert all(torch.equal(kept[name], part) for name, part in trainer.model.state_dict().items())


def test_a_stopped_run_goes_on_to_the_same_bytes(tmp_path, finished, steps, contents):
    out = tmp_path / "results"
    torch.manual_seed(5)
    steps.stop_at = 9
    assert command(out, "--save-every", 0).exit_code == 130
    assert not (out / "training.parquet").exists()
    steps.taken = 0
    steps.stop_at = None
    for more in ("", ",ata-icml"):  # for another policy, the training is there
        result = command(out, policies=f"ofta,uta,gta{more}")
        assert result.exit_code == 0, result.output
        assert steps.taken == ROUNDS - 8  # no step is taken twice
        if not more:
            assert contents(out) == contents(finished[0])
            assert not list((out / "checkpoints").iterdir())
    assert "ata-icml" in result.stdout


def interrupted(folder, which):
    step = Trainer.step

    def signalled(self):
        if self.round == 11:
            os.kill(os.getpid(), which)
        return step(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "step", signalled)
        trained(folder, save_every=1e9 if which == signal.SIGINT else 0.0)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs the signals of POSIX")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize(("which", "saved"), [("SIGINT", 12), ("SIGKILL", 11)])
def test_ctrl_c_saves_at_once_and_a_killed_process_leaves_what_it_saved(
    tmp_path,
    finished,
    which,
    saved,
):
    code = signal.Signals[which]
    if which == "SIGINT":
        with pytest.raises(KeyboardInterrupt):
            interrupted(tmp_path, code)
    else:
        process = get_context("fork").Process(target=interrupted, args=(tmp_path, code))
        process.start()
        process.join()
        assert process.exitcode == -code
    assert (
        len(checkpoint.load(tmp_path / "checkpoints" / "training.pt", "losses")["losses"]) == saved
    )
    trained(tmp_path)
    assert same_trajectory(tmp_path, finished[0])


def test_a_damaged_checkpoint_is_set_aside(tmp_path, finished, steps):
    steps.stop_at = 9
    with pytest.raises(KeyboardInterrupt):
        trained(tmp_path, save_every=0)
    saved = tmp_path / "checkpoints" / "training.pt"
    content = bytearray(saved.read_bytes())
    content[len(content) // 2] ^= 1
    saved.write_bytes(content)
    steps.taken = 0
    steps.stop_at = None
    with pytest.warns(UserWarning, match="damaged"):
        trained(tmp_path)
    assert steps.taken == ROUNDS - 7  # from the checkpoint before
    assert same_trajectory(tmp_path, finished[0])


def test_a_changed_configuration_is_refused(finished, contents, refused):
    before = contents(finished[0])
    result = command(
        finished[0],
        "--optimizer",
        "adam",
        "--seed",
        3,
        "--evaluate-every",
        7,
        "--threads",
        2,
    )
    refused(result, 'optimizer is "sgd" there and "adam" here, lr is 0.05 there and 0.003 here')
    for difference in (
        "seed is 0 there and 3",
        "evaluate_every is null there and 7",
        "threads is 1 there and 2",
    ):
        assert f"{difference} here" in result.stderr
    assert contents(finished[0]) == before


def test_a_training_that_fails_at_its_beginning_does_not_hold_the_folder(
    tmp_path,
    refused,
    monkeypatch,
):
    def without_memory(self):
        with enough_memory(self.device, "round 1"):
            torch.empty(10**16)

    out = tmp_path / "results"
    few = {"policies": "ofta", "rounds": 2}
    monkeypatch.setattr(Trainer, "step", without_memory)
    refused(command(out, **few), "round 1 does not fit into the memory of cpu")
    monkeypatch.setattr(Trainer, "step", lambda _: 1 / 0)
    refused(command(out, **few), "the problem digits failed: ZeroDivisionError: division by zero")
    monkeypatch.undo()
    refused(
        command(out, "--lr", "1e308", **few),
        "lr must be at most 3.4e+38, the largest number that the weights",
    )
    assert command(out, "--lr", "0.1", policies="ofta", rounds=1).exit_code == 0
    refused(
        command(tmp_path / "later", "--problem", "quadratic", "--lr", 1e200),
        "; rounds 0 to 1 are kept in ",
    )
    assert (tmp_path / "later" / "checkpoints" / "training.pt").exists()


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--problem", "cifar100", "--data", "none.npz"), "there is no file none.npz"),
        (("--problem", "torch:math:pi"), "there is no problem 'math:pi': it is no function"),
        (("--threads", "0"), "threads must be a whole number"),
        (("--threads", "100000"), "threads must be at most 1,024, not 100,000"),
        (("--evaluate-every", "0"), "evaluate-every must be a whole number"),
        (("--save-every", "nan"), "save-every must be at least 0 seconds"),
        (("--scenario", "alibaba-1"), "made of recorded times, which train does not play"),
        (("--lr", "fast"), "lr must be a positive number or theory, not 'fast'"),
        (("--lr", "theory"), "digits does not say; give a learning rate in place of theory"),
        (("--methods", ","), "name at least one method"),
        (("--methods", "rennala", "--seeds", 2), "methods goes without seeds"),
        (("--methods", "rennala=fast"), "with a positive learning rate, not 'rennala=fast'"),
        (("--methods", "rennala", "--schedule", "cosine:10"), "methods goes without schedule"),
        (
            ("--scenario", "drawn-6-v1", "--policies", "uta", "--methods", "asgd=0.1"),
            "drawn-6-v1 are drawn anew",
        ),
        (("--clock", "wall"), "clock must be pool or device, not 'wall'"),
        (("--clock", "device"), "clock device and workers go together"),
        (("--workers", "cpu"), "clock device and workers go together"),
        (
            ("--clock", "device", "--workers", "cpu", "--methods", "asgd"),
            "clock device goes without methods",
        ),
        (
            ("--clock", "device", "--workers", "cpu", "--compile"),
            "leave out compile=... and graphs=...",
        ),
        (
            ("--methods", "asgd", "--micro-batch", "2", "--compile"),
            "methods goes without micro-batch, compile",
        ),
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_bad_input_is_one_sentence_and_leaves_nothing(tmp_path, arguments, sentence, refused):
    refused(command(tmp_path / "results", *arguments), sentence)
    assert not (tmp_path / "results").exists()


def test_a_note_whose_fields_hold_something_else_is_refused_by_file_and_field(finished, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)
    (out / manifest.NAME).unlink()
    note = json.loads((out / "about.json").read_text())
    method = {"label": "asgd", "lr": 0.1, "kind": "given"}
    note |= {"policies": note["policies"][:1], "methods": [method]}
    (out / "about.json").write_text(json.dumps(note))
    taken = refused_by_field(out / "about.json", lambda: LossStudy.report(out))
    free = {name for name in taken if ".facts." not in name}
    assert free == {"price", "lr", "lower_bound", "methods[0].lr", "methods[0].kind"}


def test_determinism_ends_where_it_should():
    def modes():
        return torch.get_num_threads(), torch.are_deterministic_algorithms_enabled()

    before = modes()
    within = []
    with pytest.raises(ZeroDivisionError), deterministic(2):
        within.append(modes()) or 1 / 0
    assert (within, modes()) == ([(2, True)], before)


def test_evaluations_in_so_many_rounds_and_progress_in_lines_where_there_is_no_terminal(
    tmp_path,
    monkeypatch,
    refused,
):
    monkeypatch.setattr(progress, "LINE_EVERY", 0.0)
    result = command(tmp_path, "--evaluate-every", 10, policies="uta")
    assert evaluated(pl.read_parquet(tmp_path / "training.parquet")) == [0, 10, 20, 24]
    (tmp_path / "training.parquet").write_bytes(b"no parquet")
    refused(
        command(tmp_path, "--evaluate-every", 10, policies="uta"),
        "training.parquet is damaged",
    )
    for words in (f"digits 20 of {ROUNDS}, loss", f"uta 2 of {ROUNDS}"):
        assert words in result.stderr
