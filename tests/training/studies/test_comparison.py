"""Loss curves, and methods beside the policies in ``ata-gym train``."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym.bench.experiment.experiment import Experiment
from ata_gym.bench.experiment.store import open_folder
from ata_gym.bench.report import style
from ata_gym.cli import app
from ata_gym.training import METHODS, Trainer, make_problem, run_method
from ata_gym.training.problems.quadratic import Quadratic
from ata_gym.training.studies import comparison, kept_trajectory
from ata_gym.training.studies.comparison import DEFAULT, GIVEN, GRID, THEORY, Comparison, MethodChoice
from ata_gym.training.studies.curves import (
    LossReading,
    draw,
    equal_clocks_note,
    evaluations_on_clocks,
    goal,
    losses_on_clocks,
)
from ata_gym.training.studies.kept_trajectory import Training, keep_trajectory
from ata_gym.training.studies.loss_study import draw_methods
from tests.flips import unseen

ROUNDS, BUDGET = 20, 5
RUN = "rennala,ringmaster,minibatch,mindflayer,ringmaster=0.02"
EXPERIMENT = Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1)


def command(out, *more, methods=RUN):
    arguments = ["train", "--scenario", "icml2025-regret", "--policies", "ofta,gta", "--rounds", str(ROUNDS)]
    return CliRunner().invoke(app, [*arguments, "--out", str(out), "--methods", methods, *map(str, more)])


@pytest.mark.parametrize(("name", "lr"), [("rennala", 0.05), ("minibatch", 0.05 * 4), ("ringmaster=0.02", 0.02)])
def test_a_method_is_its_own_run_that_ends_with_as_many_gradients_as_the_policies(finished, name, lr):
    frame = pl.read_parquet(finished[0] / "methods" / f"{name.replace('=', '%3D')}.parquet")
    method, pool = name.partition("=")[0], EXPERIMENT.scenario.pool
    run = run_method(method, pool, "digits", budget=BUDGET, lr=lr, updates=len(frame))
    for column in ("runtime", "total_worker_time", "computed", "used", "loss"):
        assert frame[column].to_list() == getattr(run, column).tolist()
    assert frame["accuracy"][-1] == make_problem("digits").evaluate(run.model)["accuracy"]
    assert frame["used"][-2] < ROUNDS * BUDGET <= frame["used"][-1]


def test_they_are_in_the_tables_and_the_pictures_again_without_running_again(finished, monkeypatch, contents):
    out, result = finished
    for name in RUN.split(","):
        assert result.stdout.count(f"\n {name} ") == 3, name
        assert name in (out / "table.md").read_text()
    assert "each until it has used 20 x 5 gradients" in result.stdout
    assert "-: not reached" in result.stdout
    assert "nan" not in result.stdout
    assert unseen(out) == []  # a flipped byte in any file is named
    before = contents(out)
    monkeypatch.setattr(comparison, "MethodRun", None)
    assert command(out).stdout == result.stdout
    assert contents(out) == before


def test_a_method_that_diverges_is_named_after_the_report_on_the_others(tmp_path):
    result = command(tmp_path, methods="minibatch=1e30,rennala")
    assert result.exit_code == 1
    assert "rennala" in result.stdout
    assert "minibatch=1e30: the training loss is" in result.stderr
    assert "another learning rate is given as minibatch=RATE" in result.stderr
    assert not (tmp_path / "methods" / "minibatch%3D1e30.parquet").exists()


def test_learning_rates():
    noisy, exact, pool = Quadratic(noise=0.1), Quadratic(noise=0.0), EXPERIMENT.scenario.pool

    def rate(text, problem, lr=1.0):
        return MethodChoice.parse(text).rate(EXPERIMENT, problem, lr)

    rates = {name: rate(name, noisy) for name in METHODS}  # each gradient moves the weights by as much
    assert rates["rennala"] == 1.0
    assert rates["minibatch"] == 20 / BUDGET
    assert rates["ringmaster"] == rates["asgd"] == 1 / BUDGET
    assert 1.0 <= rates["mindflayer"] < 2.0
    assert rate("asgd", noisy, None) is None  # an optimiser's own
    for name in ("rennala", "ringmaster", "mindflayer"):
        expected = METHODS[name](pool, BUDGET).step_size(noisy.smoothness, 1.0, 1.0 / BUDGET)
        assert rate(f"{name}=theory", noisy) == pytest.approx(expected)
    assert rate("rennala=theory", exact) == 1 / exact.smoothness
    with pytest.raises(ValueError, match="ssp=theory needs a problem whose smoothness and variance are known"):
        rate("ssp=theory", Trainer("digits", 1).problem)
    with pytest.raises(ValueError, match="with a positive learning rate, not 'asgd=0'"):
        MethodChoice.parse("asgd=0")


@pytest.mark.parametrize(
    ("policies", "compared"),
    [(DEFAULT, {"rennala"}), (GIVEN, {"rennala", "asgd=0.1"}), (THEORY, {"rennala", "ringmaster=theory"})],
)
def test_no_ratio_is_shown_where_learning_rates_differ_in_kind(policies, compared):
    choices = [MethodChoice.parse(text) for text in ("rennala", "asgd=0.1", "ringmaster=theory")]
    choices.append(MethodChoice.parse("ssp").at_each_rate()[0])
    unlike = comparison.other_kinds(choices, policies)
    assert {choice.label for choice in choices} - unlike.keys() == compared
    note = comparison.no_ratio_note(unlike, policies)
    assert all(f"{label} (" in note for label in unlike)


def test_learning_rates_that_are_all_by_theory_are_compared(tmp_path):
    line = "train --scenario five-workers --problem quadratic --rounds 40 --policies ofta --lr theory"
    result = CliRunner().invoke(app, f"{line} --methods rennala,ringmaster=theory --out {tmp_path}".split())
    assert "no ratios for" not in result.stdout
    table = pl.read_csv(tmp_path / "table.csv").filter(policy="ringmaster=theory")
    assert table.filter(quantity="runtime/ofta")["mean"].is_not_null().all()


RATES = GRID[4:7]


def tuned(out, *more):
    line = "train --scenario five-workers --problem quadratic --rounds 15 --policies gta --methods rennala,asgd=0.1"
    with pytest.MonkeyPatch.context() as patch:
        for module in (comparison, kept_trajectory):
            patch.setattr(module, "GRID", RATES)
        return CliRunner().invoke(
            app, [*line.split(), "--tune", "--save-every", "0", "--out", str(out), *map(str, more)]
        )


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory):
    out = tmp_path_factory.mktemp("tuned")
    return out, tuned(out)


def test_tuned_policies_are_compared_with_tuned_methods(tuned_once):
    out, result = tuned_once
    assert result.exit_code == 0, result.output
    rounds = {}
    for lr in RATES:
        trainer = Trainer("quadratic", 8, lr=lr)
        losses = [trainer.step() for _ in range(15)]
        assert pl.read_parquet(out / f"rates/{lr:g}/training.parquet")["loss"].to_list() == [None, *losses]
        rounds[lr] = next((k for k, loss in enumerate(losses, start=1) if loss <= losses[0] / 100), np.inf)
    best = min(rounds, key=rounds.__getitem__)
    assert list(rounds.values()).count(rounds[best]) == 1
    assert best not in {RATES[0], RATES[-1]}
    table = pl.read_csv(out / "table.csv")
    both = ["gta", f"rennala={best:g}"]
    clocks = table.filter(pl.col("policy").is_in(both), quantity="runtime")["mean"].to_list()
    assert len(table.filter(quantity="runtime")["mean"].drop_nulls()) == 3
    assert clocks[0] == clocks[1]  # Rennala's updates are GTA's rounds, and the rates are chosen alike
    assert table.filter(quantity="runtime/gta").drop_nulls("mean")["policy"].to_list() == both
    for told in (result.stdout, (out / "table.md").read_text(), (out / "report.html").read_text()):
        assert f"the learning rate of the policies is {best:g}, tuned" in told
        assert "no ratios for asgd=0.1 (given)" in told
    assert json.loads((out / "rates" / f"{best:g}" / "config.json").read_text())["lr"] == best
    assert json.loads((out / "config.json").read_text())["lr"] == list(RATES)


def test_the_lowest_loss_is_chosen_where_no_rate_reaches_a_hundredth_of_the_first(tmp_path, monkeypatch):
    def train(_self, trainer, *_):
        losses = {GRID[0]: [1.0, 0.9, 0.3], GRID[3]: [1.0, 0.2, 0.4], GRID[5]: [1.0, 0.5, 0.2]}
        if trainer.optimizer_choice.lr not in losses:
            raise FloatingPointError("the training loss is inf")
        return trajectory(losses[trainer.optimizer_choice.lr])

    monkeypatch.setattr(Training, "train", train)
    quadratic = Trainer("quadratic", 8, clip_norm=3.0)
    found = keep_trajectory(Training("quadratic", tune=True), quadratic, {"rounds": 3}, tmp_path)
    assert found.trajectory["loss"].to_list() == [None, 1.0, 0.2, 0.4]
    assert found.trainer.config() == quadratic.config() | {"lr": GRID[3]}
    assert found.where == tmp_path / "rates" / f"{GRID[3]:g}"


def test_a_tuning_that_is_stopped_twice_goes_on_to_the_same_bytes(tuned_once, tmp_path, contents, monkeypatch):
    leap, trained, write, written = Trainer.leap, [], comparison.write_frame, []

    def counted(trainer, rounds):
        trained.append(trainer.optimizer_choice.lr)
        if len(trained) == 25:
            raise KeyboardInterrupt
        return leap(trainer, rounds)

    def interrupted(path, *rest):
        written.append(path)
        if len(written) == 2:
            raise KeyboardInterrupt
        write(path, *rest)

    monkeypatch.setattr(Trainer, "leap", counted)
    monkeypatch.setattr(comparison, "write_frame", interrupted)
    assert tuned(tmp_path).exit_code == 130
    assert {*trained} == {*RATES[:2]}  # in a later trajectory than the first
    assert tuned(tmp_path).exit_code == 130
    assert len(written) == 2  # in the second run of a method
    assert tuned(tmp_path).exit_code == 0
    assert len(trained) < 15 * len(RATES) + 10
    assert len({*written}) == len(written) - 1  # no method that has ended runs again
    assert contents(tmp_path) == contents(tuned_once[0])
    assert unseen(tmp_path) == []


def test_a_tuning_that_fails_leaves_nothing_or_after_a_rate_its_configuration(tmp_path, monkeypatch, refused):
    step = Trainer.step

    def fail(trainer):
        if fails == "always":
            raise FloatingPointError("the training loss is nan")
        if trainer.optimizer_choice.lr == RATES[1]:
            raise RuntimeError("no power")
        return step(trainer)

    monkeypatch.setattr(Trainer, "step", fail)
    fails = "always"
    refused(tuned(tmp_path / "out"), "no learning rate of --tune trains; at the last one the training loss is nan")
    assert not list((tmp_path / "out").rglob("config.json"))
    open_folder(tmp_path / "out", {"lr": "of a corrected command"})
    fails = "later"
    refused(tuned(tmp_path / "later"), "the problem quadratic failed: RuntimeError: no power")
    refused(tuned(tmp_path / "later", "--seed", 1), "seed is 0 there and 1 here")


def test_what_is_never_reached_is_null(tmp_path):
    folder = open_folder(tmp_path, EXPERIMENT.config())
    entry = MethodChoice.parse("mindflayer")
    frame = comparison.run_once(entry, Trainer("quadratic", BUDGET, lr=0.1), EXPERIMENT, folder)
    assert "suboptimality" in frame.columns
    reading = LossReading.of(Quadratic(), ROUNDS)
    never, soon = (Comparison(EXPERIMENT, trajectory([level]), reading, {entry: frame}) for level in (-1.0, 1e9))
    curves = never.method_curves()
    assert curves["round"][-1] == len(frame)
    assert curves["loss"].is_finite().all()
    assert never.reached(entry) == (None, None)
    assert soon.reached(entry) == (curves["runtime"][0], curves["total_worker_time"][0])


def test_every_method_has_a_line_of_its_own():
    looks = style.lines([*METHODS, "ringmaster=0.1", "gta", "mine"])
    assert len({looks[name]["marker"] for name in METHODS}) == len(METHODS)
    assert looks["ringmaster=0.1"] == looks["ringmaster"]
    assert looks["rennala"]["color"] == looks["gta"]["color"]
    assert "marker" not in looks["mine"]


LOSSES = [2.0, 1.0, 0.5, 0.02, 0.4]


def trajectory(losses):
    return pl.DataFrame({"round": range(len(losses) + 1), "loss": [None, *losses]})


def clocks(rounds, **speeds):
    frame, k = pl.DataFrame({"round": rounds}), pl.col("round")
    return pl.concat(
        frame.select(policy=pl.lit(policy), round=k, runtime=k * speed, total_worker_time=k * speed * 10.0)
        for policy, speed in speeds.items()
    )


def test_an_exact_loss_is_read_as_it_is():
    exact, noisy = LossReading.of(Quadratic(), 5000), LossReading.of(Trainer("digits", 1).problem, 5000)
    assert exact(pl.Series(LOSSES)).to_list() == LOSSES
    assert (exact.label(), exact.stretched(23)) == ("loss, exact", exact)
    assert noisy.label() == "training loss, exponential\nmean over about 100 rounds"
    assert noisy.stretched(23).over == 2300


def test_the_round_of_the_goal_is_recorded_however_sparse_the_records():
    sparse = replace(EXPERIMENT, rounds=1000, points=5, also=(517,))
    assert sparse.record_at().tolist() == [1, 6, 32, 178, 517, 1000]
    with pytest.raises(ValueError, match="rounds from 1 to 20"):
        replace(EXPERIMENT, also=(21,))


EXACT = LossReading(over=1, exact=True)


def test_each_policy_gets_the_one_curve_on_its_own_clock_which_runs_evenly_between_recorded_rounds():
    run = trajectory(LOSSES).with_columns(accuracy=pl.Series([0.1, None, None, 0.3, None, 0.9]))
    records = clocks([1, 2, 5], slow=3.0, fast=1.0)
    curves, laid = losses_on_clocks(run, records, EXACT), evaluations_on_clocks(run, records)
    assert curves["policy"].to_list() == ["slow"] * 3 + ["fast"] * 3
    assert curves["loss"].to_list() == [2.0, 1.0, 0.4] * 2
    assert curves["runtime"].to_list() == [3.0, 6.0, 15.0, 1.0, 2.0, 5.0]
    assert curves["total_worker_time"].to_list() == [30.0, 60.0, 150.0, 10.0, 20.0, 50.0]
    assert laid["policy"].to_list() == ["slow", "slow", "fast", "fast"]
    assert laid["accuracy"].to_list() == [0.3, 0.9] * 2
    assert laid["runtime"].to_list() == [9.0, 15.0, 3.0, 5.0]


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        (LOSSES, (0.02, 4)),  # a hundredth of the first
        ([2.0, 1.0, 1.5], (1.0, 2)),  # the lowest
        ([1.0], (1.0, 1)),
        ([1.0, 3.0], (1.0, 1)),
        ([-1.0, -3.0], (-0.01, 1)),
    ],
)
def test_the_goal(losses, expected):
    assert goal(trajectory(losses), EXACT) == expected


def test_pictures_of_policies_and_of_methods(tmp_path, drawn):
    run = trajectory([0.5, 0.0, -0.5]).with_columns(accuracy=pl.lit(0.5))
    records = clocks([1, 2, 3], ata=1.0, mine=2.0)
    curves, evaluations = losses_on_clocks(run, records, EXACT), evaluations_on_clocks(run, records)
    drawn(lambda: draw(curves, evaluations, EXACT.label(), "a title", tmp_path / "loss", "a note"))
    run, rounds = trajectory(LOSSES), range(1, len(LOSSES) + 1)
    curves = losses_on_clocks(run, clocks(rounds, **{"rennala": 1.0, "asgd=0.1": 2.0}), EXACT)
    reference = losses_on_clocks(run, clocks(rounds, gta=1.0), EXACT)
    drawn(lambda: draw_methods(curves, reference, "loss", "a title", tmp_path / "methods"))


def test_policies_whose_clocks_are_equal_are_named():
    records = clocks([1, 5], uta=1.0, gta=2.0, ata=1.0, mine=2.0, other=3.0)
    first, second = equal_clocks_note(records).removesuffix(".").split(". ")
    assert first.startswith("uta and ata lie exactly on each other up to round 5: all their scores are still 0")
    assert second == "gta and mine lie exactly on each other up to round 5: their allocations are equal"
    assert equal_clocks_note(clocks([1, 5], uta=1.0, ata=1.1)) == ""
