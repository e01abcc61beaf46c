"""Loss curves, and methods beside the policies in ``ata-gym train``."""

from dataclasses import replace

import polars as pl
import pytest
from typer.testing import CliRunner

from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.report.charts import against_clocks
from ata_gym.bench.report.losses import equal_clocks_note
from ata_gym.bench.report.pictures import Drawing, against_clocks as clock_panels
from ata_gym.bench.store.folder import open_folder
from ata_gym.bench.studies.training import methods as training_methods
from ata_gym.bench.studies.training.curves import (
    LossReading,
    evaluations_on_clocks,
    goal,
    losses_on_clocks,
)
from ata_gym.bench.studies.training.methods import (
    DEFAULT,
    GIVEN,
    THEORY,
    MethodChoice,
    no_ratio_note,
    other_kinds,
    run_once,
)
from ata_gym.bench.studies.training.one_trajectory.comparison import LossComparison
from ata_gym.cli import app
from ata_gym.training import METHODS, Trainer, make_problem
from ata_gym.training.problems.quadratic import Quadratic
from tests.flips import unseen
from tests.training.small_problem import run_method

ROUNDS = 20
BUDGET = 5
RUN = "rennala,ringmaster,minibatch,mindflayer,ringmaster=0.02"
EXPERIMENT = Experiment.on_scenario("icml2025-regret", rounds=ROUNDS, seeds=1)


def command(out, *more, methods=RUN):
    arguments = [
        "train",
        "--scenario",
        "icml2025-regret",
        "--policies",
        "ofta,gta",
        "--rounds",
        str(ROUNDS),
    ]
    return CliRunner().invoke(
        app,
        [*arguments, "--out", str(out), "--methods", methods, *map(str, more)],
    )


@pytest.mark.parametrize(
    ("name", "lr"),
    [("rennala", 0.05), ("minibatch", 0.05 * 4), ("ringmaster=0.02", 0.02)],
)
def test_a_method_is_its_own_run_that_ends_with_as_many_gradients_as_the_policies(
    finished,
    name,
    lr,
):
    frame = pl.read_parquet(finished[0] / "methods" / f"{name.replace('=', '%3D')}.parquet")
    method = name.partition("=")[0]
    pool = EXPERIMENT.scenario.pool
    run = run_method(method, pool, "digits", budget=BUDGET, lr=lr, updates=len(frame))
    for column in ("runtime", "total_worker_time", "computed", "used", "loss"):
        assert frame[column].to_list() == getattr(run, column).tolist()
    assert frame["accuracy"][-1] == make_problem("digits").evaluate(run.model)["accuracy"]
    assert frame["used"][-2] < ROUNDS * BUDGET <= frame["used"][-1]


def test_they_are_in_the_tables_and_the_pictures_again_without_running_again(
    finished,
    monkeypatch,
    contents,
):
    out, result = finished
    for name in RUN.split(","):
        assert result.stdout.count(f"\n {name} ") == 3, name
        assert name in (out / "table.md").read_text()
    assert "each until it has used 20 x 5 gradients" in result.stdout
    assert "-: not reached" in result.stdout
    assert "nan" not in result.stdout
    assert unseen(out) == []  # a flipped byte in any file is named
    before = contents(out)
    monkeypatch.setattr(training_methods, "MethodRun", None)
    assert (command(out).stdout, contents(out)) == (result.stdout, before)


def test_a_method_that_diverges_is_named_after_the_report_on_the_others(tmp_path):
    result = command(tmp_path, methods="minibatch=1e30,rennala")
    assert result.exit_code == 1
    assert "rennala" in result.stdout
    assert "minibatch=1e30 failed: FloatingPointError: the training loss is" in result.stderr
    assert "another learning rate is given as minibatch=RATE" in result.stderr
    assert not (tmp_path / "methods" / "minibatch%3D1e30.parquet").exists()


def test_learning_rates():
    noisy = Quadratic(noise=0.1)
    exact = Quadratic(noise=0.0)
    pool = EXPERIMENT.scenario.pool

    def rate(text, problem, lr=1.0):
        return MethodChoice.parse(text).rate(EXPERIMENT, problem, lr)

    # each gradient moves the weights by as much
    rates = {name: rate(name, noisy) for name in METHODS}
    assert (rates["rennala"], rates["minibatch"]) == (1.0, 20 / BUDGET)
    assert rates["ringmaster"] == rates["asgd"] == 1 / BUDGET
    assert 1.0 <= rates["mindflayer"] < 2.0
    assert rate("asgd", noisy, None) is None  # an optimiser's own
    for name in ("rennala", "ringmaster", "mindflayer"):
        expected = METHODS[name](pool, BUDGET).step_size(noisy.smoothness, 1.0, 1.0 / BUDGET)
        assert rate(f"{name}=theory", noisy) == pytest.approx(expected)
    assert rate("rennala=theory", exact) == 1 / exact.smoothness
    with pytest.raises(
        ValueError,
        match="ssp=theory needs a problem whose smoothness and variance are known",
    ):
        rate("ssp=theory", Trainer("digits", 1).problem)
    with pytest.raises(ValueError, match="with a positive learning rate, not 'asgd=0'"):
        MethodChoice.parse("asgd=0")


@pytest.mark.parametrize(
    ("policies", "compared"),
    [
        (DEFAULT, {"rennala"}),
        (GIVEN, {"rennala", "asgd=0.1"}),
        (THEORY, {"rennala", "ringmaster=theory"}),
    ],
)
def test_no_ratio_is_shown_where_learning_rates_differ_in_kind(policies, compared):
    choices = [MethodChoice.parse(text) for text in ("rennala", "asgd=0.1", "ringmaster=theory")]
    unlike = other_kinds({choice.label: choice.kind for choice in choices}, policies)
    assert {choice.label for choice in choices} - unlike.keys() == compared
    note = no_ratio_note(unlike, policies)
    assert all(f"{label} (" in note for label in unlike)


def test_learning_rates_that_are_all_by_theory_are_compared(tmp_path):
    line = (
        "train --scenario five-workers --problem quadratic --rounds 40 --policies ofta --lr theory"
    )
    result = CliRunner().invoke(
        app,
        f"{line} --methods rennala,ringmaster=theory --out {tmp_path}".split(),
    )
    assert "no ratios for" not in result.stdout
    table = pl.read_csv(tmp_path / "table.csv").filter(policy="ringmaster=theory")
    assert table.filter(quantity="runtime/ofta")["mean"].is_not_null().all()


def test_what_is_never_reached_is_null(tmp_path):
    folder = open_folder(tmp_path, EXPERIMENT.config())
    entry = MethodChoice.parse("mindflayer")
    frame = run_once(entry, Trainer("quadratic", BUDGET, lr=0.1), EXPERIMENT, folder)
    assert "suboptimality" in frame.columns
    reading = LossReading.from_problem(Quadratic(), ROUNDS)
    never, soon = (
        LossComparison(
            EXPERIMENT.sizes,
            EXPERIMENT.points,
            trajectory([level]),
            reading,
            pl.DataFrame(),
            {"mindflayer": frame},
        )
        for level in (-1.0, 1e9)
    )
    (curves,) = never.method_curves()
    assert curves["round"][-1] == len(frame)
    assert curves["loss"].is_finite().all()
    assert never.reached("mindflayer") == (None, None)
    assert soon.reached("mindflayer") == (curves["runtime"][0], curves["total_worker_time"][0])


def test_every_method_has_a_line_of_its_own():
    names = [*METHODS, "ringmaster=0.1", "gta", "mine"]
    looks = style.lines(names)
    assert len({looks[name]["marker"] for name in METHODS}) == len(METHODS)
    assert looks["ringmaster=0.1"]["marker"] == looks["ringmaster"]["marker"]
    # a page has no markers
    assert len({(look["color"], look["linestyle"]) for look in looks.values()}) == len(names)
    assert style.lines(["rennala"])["rennala"]["color"] == style.lines(["gta"])["gta"]["color"]
    assert "marker" not in looks["mine"]


LOSSES = [2.0, 1.0, 0.5, 0.02, 0.4]


def trajectory(losses):
    return pl.DataFrame({"round": range(len(losses) + 1), "loss": [None, *losses]})


def clocks(rounds, **speeds):
    frame = pl.DataFrame({"round": rounds})
    k = pl.col("round")
    return pl.concat(
        frame.select(
            policy=pl.lit(policy),
            round=k,
            runtime=k * speed,
            total_worker_time=k * speed * 10.0,
        )
        for policy, speed in speeds.items()
    )


def test_an_exact_loss_is_read_as_it_is():
    exact = LossReading.from_problem(Quadratic(), 5000)
    noisy = LossReading.from_problem(Trainer("digits", 1).problem, 5000)
    assert exact(pl.Series(LOSSES)).to_list() == LOSSES
    assert (exact.label(), exact.stretched(23)) == ("loss, exact", exact)
    assert noisy.label() == "training loss, exponential mean over about 100 rounds"
    assert noisy.stretched(23).over == 2300


def test_the_round_of_the_goal_is_recorded_however_sparse_the_records():
    sparse = replace(EXPERIMENT, rounds=1000, points=5, also=(517,))
    assert sparse.record_at().tolist() == [1, 6, 32, 178, 517, 1000]
    with pytest.raises(ValueError, match="rounds from 1 to 20"):
        replace(EXPERIMENT, also=(21,))


EXACT = LossReading(over=1, exact=True)


def test_each_policy_gets_the_one_curve_on_its_own_clock():
    run = trajectory(LOSSES).with_columns(accuracy=pl.Series([0.1, None, None, 0.3, None, 0.9]))
    records = clocks([1, 2, 5], slow=3.0, fast=1.0)
    curves = losses_on_clocks(run, records, EXACT)
    laid = evaluations_on_clocks(run, records)
    assert curves["policy"].to_list() == ["slow"] * 3 + ["fast"] * 3
    assert curves["loss"].to_list() == [2.0, 1.0, 0.4] * 2
    assert curves["runtime"].to_list() == [3.0, 6.0, 15.0, 1.0, 2.0, 5.0]
    assert curves["total_worker_time"].to_list() == [30.0, 60.0, 150.0, 10.0, 20.0, 50.0]
    assert laid["policy"].to_list() == ["slow", "slow", "fast", "fast"]
    assert (laid["accuracy"].to_list(), laid["runtime"].to_list()) == (
        [0.3, 0.9] * 2,
        [9.0, 15.0, 3.0, 5.0],
    )


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


@pytest.mark.parametrize(("lowest", "scale"), [(-0.5, "linear"), (0.25, "log")])
def test_the_picture_has_a_row_for_each_figure_and_a_column_for_each_clock(
    tmp_path,
    drawn,
    lowest,
    scale,
):
    run = trajectory([0.5, 0.4, lowest]).with_columns(accuracy=pl.lit(0.5))
    records = clocks([1, 2, 3], ata=1.0, mine=2.0)
    figures = {
        "loss": losses_on_clocks(run, records, EXACT),
        "accuracy": evaluations_on_clocks(run, records),
    }
    places = {"ata": 0, "mine": 1}
    rows = [against_clocks(frame, name, name, places) for name, frame in figures.items()]
    drawing = Drawing(clock_panels(rows), [*places], "a note")
    loss_time, loss_work, accuracy_time, accuracy_work = drawing().axes
    assert loss_time.get_title(loc="left") == "how long training takes (left is faster)"
    assert loss_work.get_title(loc="left") == "how much work it costs (left is cheaper)"
    assert (loss_time.get_ylabel(), accuracy_time.get_ylabel()) == ("loss", "accuracy")
    assert (loss_work.get_ylabel(), accuracy_time.get_title(loc="left")) == ("", "")
    assert (loss_time.get_yscale(), accuracy_time.get_yscale()) == (scale, "linear")
    assert (loss_time.get_xlabel(), accuracy_work.get_xlabel()) == ("runtime", "worker time")
    times = {line.get_label(): line.get_xdata().tolist() for line in loss_time.get_lines()}
    assert times == {"ata": [1.0, 2.0, 3.0], "mine": [2.0, 4.0, 6.0]}
    assert loss_work.get_shared_y_axes().joined(loss_work, loss_time)
    drawn(lambda: style.save(drawing(), tmp_path / "loss", "a title"))


def test_policies_whose_clocks_are_equal_are_named():
    records = clocks([1, 5], uta=1.0, gta=2.0, ata=1.0, mine=2.0, other=3.0)
    first, second = equal_clocks_note(records).removesuffix(".").split(". ")
    assert first.startswith(
        "The lines of uta and ata are equal up to round 5: all their scores are still 0",
    )
    assert (
        second == "The lines of gta and mine are equal up to round 5: their allocations are equal"
    )
    assert equal_clocks_note(clocks([1, 5], uta=1.0, ata=1.1)) == ""
