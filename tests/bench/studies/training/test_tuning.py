"""Learning rates that are chosen by trials, for the policies and for each method."""

import json
import shutil

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.studies.training.one_trajectory import tuning
from ata_gym.cli import app
from ata_gym.training import Trainer
from tests.flips import unseen

ROUNDS = 20
PART = 4
RATES = [0.04, 0.2, 1.0, 5.0, 25.0]
METHODS = "rennala,ringmaster,asgd=0.1"


def command(out, *more, methods=METHODS, problem="quadratic", lr_grid=RATES):
    line = (
        f"train --scenario five-workers --problem {problem} --rounds {ROUNDS} --policies gta,ofta"
        f" --methods {methods} --tune --save-every 0 --out {out}"
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tuning, "FACTORS", lr_grid)
        return CliRunner().invoke(app, [*line.split(), *map(str, more)])


def losses(lr, seed, rounds):
    trainer = Trainer("quadratic", 8, lr=lr, seed=seed)
    recorded = []
    for _ in range(rounds):
        try:
            recorded.append(trainer.step())
        except FloatingPointError:
            return None
    return recorded


def test_each_has_its_best_rate_of_the_grid_by_trials_on_another_seed(finished):
    out, result = finished
    trials = pl.read_csv(out / "rates.csv")
    default = Trainer("quadratic", 8).optimizer_choice.lr
    grid = [float(f"{default * factor:.3g}") for factor in RATES]
    policies = trials.filter(label="policies")
    assert policies["lr"].to_list() == grid
    expected = [losses(lr, 1, PART)[-1] for lr in grid]
    assert policies["loss"].to_list() == expected
    best = grid[int(np.argmin(expected))]
    assert policies.filter("chosen")["lr"].to_list() == [best]
    # the trajectory of the comparison has this rate, and a seed that no trial has
    trajectory = pl.read_parquet(out / "training.parquet")
    assert trajectory["loss"].to_list() == [None, *losses(best, 0, ROUNDS)]
    method = trials.filter(label="ringmaster")
    assert method["lr"].to_list() == [float(f"{default / 8 * factor:.3g}") for factor in RATES]
    for lr, loss in method.select("lr", "loss").rows():
        frame = pl.read_parquet(
            out / "rates" / "ringmaster" / f"{lr:g}" / "methods" / "ringmaster.parquet",
        )
        assert frame["used"][-1] >= 8 * PART > frame["used"][-2]
        assert frame["loss"].drop_nulls()[-1] == loss
    chosen = method.filter("chosen")["lr"].item()
    assert chosen == method.sort("loss")["lr"][0]
    assert trials["label"].unique(maintain_order=True).to_list() == [
        "policies",
        "rennala",
        "ringmaster",
    ]
    assert "learning rates: the loss after 4 rounds" in result.stdout
    assert result.stdout.count("  chosen") == 3
    assert f"the learning rate of the policies is {best:.3g}, tuned" in result.stdout


def test_tuned_policies_are_compared_with_tuned_methods_alone(finished):
    out, result = finished
    table = pl.read_csv(out / "table.csv")
    ratios = table.filter(quantity="runtime/gta").drop_nulls("mean")["policy"].to_list()
    assert "asgd=0.1" not in ratios
    times = dict(table.filter(quantity="runtime").select("policy", "mean").iter_rows())
    assert times["rennala"] == times["gta"]  # Rennala's updates are GTA's rounds
    assert "no ratios for asgd=0.1 (given)" in result.stdout.replace("\n", " ")
    page = bench.read(out).content.page()
    assert "rates" in [section.id for section in page.sections]
    assert unseen(out) == []
    config = json.loads((out / "config.json").read_text())
    assert config["tuning"] == {"rounds": PART, "seed": 1}


def test_the_same_command_says_the_same_and_another_way_to_a_rate_is_refused(finished, refused):
    out, result = finished
    assert command(out).stdout == result.stdout
    line = "train --scenario five-workers --problem quadratic --rounds 20 --policies gta --out"
    refused(CliRunner().invoke(app, [*line.split(), str(out)]), "another configuration: tuning is")


def test_a_tuning_that_is_stopped_goes_on_to_the_same_bytes(
    finished,
    tmp_path,
    contents,
    monkeypatch,
):
    leap = Trainer.train_rounds
    taken = []
    # in a trial of the policies, and in the trajectory of the comparison
    stops = {6, 5 * PART + 9}

    def counted(trainer, rounds):
        taken.append(trainer.optimizer_choice.lr)
        if len(taken) in stops:
            raise KeyboardInterrupt
        return leap(trainer, rounds)

    monkeypatch.setattr(Trainer, "train_rounds", counted)
    for _ in stops:
        assert command(tmp_path).exit_code == 130
    assert command(tmp_path).exit_code == 0
    assert len(taken) == 5 * PART + ROUNDS + len(stops)  # no step is taken twice
    assert contents(tmp_path) == contents(finished[0])


def test_a_folder_is_read_while_the_trials_of_an_added_method_are_not_finished(
    finished,
    tmp_path,
    monkeypatch,
):
    out = tmp_path / "out"
    shutil.copytree(finished[0], out)

    def stopped(choice, *_more):
        if choice.label == "minibatch":
            raise KeyboardInterrupt
        raise AssertionError(choice)

    monkeypatch.setattr(tuning, "run_once", stopped)
    assert command(out, methods=f"{METHODS},minibatch").exit_code == 130
    assert bench.read(out).table().equals(bench.read(finished[0]).table())


def test_a_rate_at_which_the_loss_is_not_finite_is_not_chosen(tmp_path, refused):
    result = command(tmp_path / "out", methods="rennala", lr_grid=[1.0, 1e200])
    assert result.exit_code == 0, result.output
    trials = pl.read_csv(tmp_path / "out" / "rates.csv")
    assert trials["loss"].is_null().to_list() == [False, True, False, True]
    assert trials["chosen"].to_list() == [True, False, True, False]
    assert "not finite" in result.stdout
    assert "The best learning rate is an end of the grid" in result.stdout.replace("\n", " ")
    none = command(tmp_path / "none", methods="rennala", lr_grid=[1e200, 1e210])
    refused(none, "no learning rate of the grid trains policies, rennala: the loss is finite at")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--lr", "0.1"), "tune goes without lr"),
        (
            ("--clock", "device", "--workers", "cpu"),
            "clock device goes without methods, tune",
        ),
        (("--problem", "heterogeneous"), "data that differ by worker goes without tune"),
    ],
)
def test_what_does_not_go_with_tuning_is_one_sentence(tmp_path, options, sentence, refused):
    refused(command(tmp_path / "out", *options), sentence)
    assert not (tmp_path / "out").exists()


def test_a_noisy_loss_is_a_mean_of_the_last_steps(tmp_path):
    results = bench.train("gta", "five-workers", rounds=200, tune=True, out=tmp_path)
    trials = pl.read_csv(tmp_path / "rates.csv")
    for lr, loss in trials.select("lr", "loss").rows():
        trainer = Trainer("digits", 8, lr=lr, seed=1)
        steps = np.array([trainer.step() for _ in range(40)])
        weights = (3 / 5) ** np.arange(39, -1, -1)  # a mean over about 4 steps
        assert loss == pytest.approx((weights * steps).sum() / weights.sum(), rel=1e-6)
    assert results.table().height
