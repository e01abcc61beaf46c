"""``ata-gym reproduce``: the figures that need training, and the compiled rounds of the
quadratic.
"""

import gc
import json
import math
import re

import numpy as np
import polars as pl
import pytest
from typer.testing import CliRunner

import ata_gym
from ata_gym import bench
from ata_gym.bench.experiment import Experiment
from ata_gym.bench.report import style
from ata_gym.bench.runner.policy_run import PolicyRun
from ata_gym.bench.studies.paper.trained import quadratic as quadratic_figure
from ata_gym.bench.studies.paper.trained.compiled_quadratic import CompiledQuadratic
from ata_gym.cli import app
from ata_gym.training import Trainer
from ata_gym.training.problems.quadratic import Quadratic
from tests.flips import unseen

ROUNDS = 40
POLICIES = ["gta", "ofta", "ata-empirical", "ata", "uta"]


def reproduce(*arguments):
    return CliRunner().invoke(app, ["reproduce", *map(str, arguments)])


def command(out, *more, rounds=ROUNDS, sizes="17,51"):
    arguments = ("--rounds", rounds, "--seeds", 2, "--sizes", sizes, "--jobs", 1, "--out", out)
    return reproduce("icml2025-quadratic", *arguments, *more)


def test_what_is_left_and_what_it_says_is_not_as_published(finished, tmp_path, contents, drawn):
    out, result = finished
    files = {"linear.md", "linear.csv", "linear-curves.csv", "plots/linear.png", "plots/linear.svg"}
    assert files <= contents(out).keys()
    assert all(policy in (out / "linear.md").read_text() for policy in POLICIES)
    assert "nan" not in result.stdout.lower()
    for words in (
        *("n = 17: linear, B = 23, 40 rounds, 2 seeds", "n = 51:", "runtime", "/ OFTA", *POLICIES),
        "The published curves have 3,000,000 rounds and these have 40",
        "--rounds 3000000",
        "n = 51: The lines of ata-empirical and ata are equal up to round 40: all their",
        "-n17: alpha = 1,972 bounds each finite psi1 norm (up to 1,565.5); eta = 2 bounds each",
    ):
        assert words in result.stdout
    assert unseen(out) == []  # a flipped byte in any file is named
    results = bench.read(out)
    picture = results.plot("linear")
    assert [axes.get_title(loc="left") for axes in picture.axes[:2]] == ["n = 17", "n = 51"]
    assert [axes.get_ylabel() for axes in picture.axes[::2]] == [
        "f - f*",
        "f - f*",
        "runtime, mean per round",
        "proxy regret, mean per round",
    ]
    # f - f* against the runtime has bands of the times, and means per round bands of the means
    assert all(axes.collections for axes in picture.axes)
    drawn(lambda: style.save(picture, tmp_path / "linear", "a title"))
    pace = results.table().filter(n=17, policy="uta", quantity="runtime/ofta")["mean"].item()
    assert results.compare("uta", "ofta").ratio.mean > 1.0 < pace
    published = ata_gym.scenario("icml2025-quadratic-linear-n153").horizon
    assert published == quadratic_figure.PUBLISHED_ROUNDS
    assert "published length" in quadratic_figure.remark(published, 0.1)


def test_mixed_families_have_infinite_norms_and_no_published_end(tmp_path, contents):
    result = reproduce(
        "icml2025-mixed",
        "--rounds",
        20,
        "--seeds",
        2,
        "--jobs",
        1,
        "--out",
        tmp_path,
    )
    for words in (
        "-n150: alpha = 16,936",
        "the psi1 norm of 30 workers (log-normal) is infinite, so",
        "Ours: the training",
    ):
        assert words in result.stdout
    assert {"mixed.md", "plots/mixed.svg", "mixed-n15/results/ata.parquet"} <= contents(
        tmp_path,
    ).keys()


def test_the_clocks_are_those_of_the_bench(finished):
    curves = pl.read_csv(finished[0] / "linear-curves.csv")
    assert curves["n"].unique(maintain_order=True).to_list() == [17, 51]
    for n, policy in ((17, "ata"), (51, "gta"), (51, "uta")):
        run = PolicyRun(
            Experiment.on_scenario(f"icml2025-quadratic-linear-n{n}", rounds=ROUNDS, seeds=2),
            policy,
        )
        while run.round < ROUNDS:
            run.play(ROUNDS)
        mine = curves.filter(n=n, policy=policy)
        mean = run.results().drop("policy").group_by("round", maintain_order=True).mean()
        for quantity in ("round", "runtime", "total_worker_time"):
            assert mine[quantity].to_list() == mean[quantity].to_list()
        assert mine["round_time"].to_list() == (mean["runtime"] / mean["round"]).to_list()
        assert mine["mean_regret"].to_list() == (mean["regret"] / mean["round"]).to_list()


def test_the_loss_is_exact_after_each_recorded_round_and_ratios_are_of_the_same_seeds(
    finished,
):
    curves = pl.read_csv(finished[0] / "linear-curves.csv").filter(n=17, policy="ofta")
    trainer = Trainer("quadratic", 23)
    after = []
    for _ in range(ROUNDS):
        trainer.step()
        after.append(trainer.evaluate()["suboptimality"])
    assert curves["suboptimality"].to_list() == pytest.approx(
        [after[k - 1] for k in curves["round"]],
        rel=1e-12,
    )
    table = pl.read_csv(finished[0] / "linear.csv").filter(n=51, policy="uta")
    frames = [
        pl.read_parquet(finished[0] / "linear-n51" / "results" / f"{p}.parquet")
        for p in ("uta", "ofta")
    ]
    uta, ofta = (frame.filter(round=ROUNDS) for frame in frames)
    means = dict(table.select("quantity", "mean").iter_rows())
    for quantity in ("runtime", "total_worker_time"):
        assert means[f"{quantity}/ofta"] == pytest.approx(
            math.exp((uta[quantity] / ofta[quantity]).log().mean()),
        )
    assert means["round_time"] == pytest.approx(uta["runtime"].mean() / ROUNDS)


def test_a_stopped_run_goes_on_to_the_same_bytes_and_its_trajectory_serves_another_growth(
    finished,
    tmp_path,
    monkeypatch,
    contents,
):
    leap = CompiledQuadratic.train_rounds

    def stopped(self, rounds):
        if self.round > 25:
            raise KeyboardInterrupt
        return leap(self, rounds)

    monkeypatch.setattr(CompiledQuadratic, "train_rounds", stopped)
    assert command(tmp_path, "--save-every", 0).exit_code == 130
    assert (tmp_path / "training" / "checkpoints" / "training.pt").exists()
    gc.collect()  # what the stopped command held is in the traceback of its end
    monkeypatch.undo()
    assert (command(tmp_path).exit_code, contents(tmp_path)) == (0, contents(finished[0]))
    monkeypatch.setattr(CompiledQuadratic, "train_rounds", None)
    result = command(tmp_path, "--growth", "square", "--seeds", 1, sizes="17")
    assert result.exit_code == 0, result.output
    assert {"square.csv", "plots/square.png", "square-n17/results/ata.parquet"} <= contents(
        tmp_path,
    ).keys()
    assert "40 rounds, 1 seed\n" in result.stdout


def test_the_papers_network_on_the_clocks_of_all_seeds(tmp_path, shared_data, contents):
    data = shared_data / "cifar100_sub_50x15.npz"
    arguments = ("--rounds", 3, "--seeds", 2, "--jobs", 1, "--out", tmp_path)
    result = reproduce("icml2025-cifar100", "--train", "--data", data, *arguments)
    assert result.exit_code == 0, result.output
    different = (
        "Other than in the paper: 3 rounds (there 750,000) and 5,000 training images (there"
        " 50,000)."
    )
    assert different in result.stdout
    assert {"plots/loss.png", "plots/loss.svg", "training/training.parquet"} <= contents(
        tmp_path,
    ).keys()
    named = (
        r"ata-empirical(,| and) ata.* are equal up to round 3: all their scores are"
        r" still 0"
    )
    assert re.search(named, result.stdout)
    for newer in ("ata-empirical-icml", "ata-icml", "thompson-beta", "distribution-learner"):
        assert f"\n {newer} " in result.stdout
        assert (tmp_path / "results" / f"{newer}.parquet").exists()
    config = json.loads((tmp_path / "training" / "config.json").read_text())
    assert (config["optimizer"], config["lr"]) == ("adam", 8e-5)
    assert str(shared_data) not in str(config)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (
            ("icml2025",),
            (
                "no published figure 'icml2025' to reproduce; known: icml2025-cifar100,"
                " icml2025-quadratic"
            ),
        ),
        (("icml2025-cifar100", "--train"), "train needs the images of CIFAR-100"),
        (("icml2025-cifar100", "--train", "--data", "none.npz"), "none.npz"),
        (("icml2025-cifar100", "--data", "none.npz"), "only go with train"),
        (("icml2025-cifar100", "--sizes", "17"), "sizes only goes with icml2025-quadratic"),
        (("icml2025-quadratic", "--train"), "train only goes with icml2025-cifar100"),
        (("icml2025-quadratic", "--sizes", "17,many"), "sizes must be numbers of workers"),
        (("icml2025-quadratic", "--sizes", ","), "sizes must be numbers of workers"),
        (
            ("icml2025-quadratic", "--sizes", "18"),
            "numbers of workers among 17, 51, 153, 459, not 18",
        ),
        (
            ("icml2025-quadratic", "--growth", "cubic"),
            "growth must be one of sqrt, linear, log, square, not 'cubic'",
        ),
        (("icml2025-quadratic", "--rounds", "0"), "rounds must be"),
        (("icml2025-quadratic", "--seeds", "0"), "seeds must be"),
        (("icml2025-quadratic", "--save-every", "-1"), "save-every must be"),
    ],
)
def test_bad_input_is_one_sentence_and_leaves_nothing(
    tmp_path,
    monkeypatch,
    arguments,
    sentence,
    refused,
):
    monkeypatch.chdir(tmp_path)
    refused(reproduce(*arguments), sentence)
    assert not list(tmp_path.iterdir())


def point(trainer):
    return trainer.model.x.detach().numpy().copy()


@pytest.mark.parametrize(
    ("dimension", "noise", "lr"),
    [(100, 0.001, 1e-4), (100, 0.001, 0.5), (1, 0.3, 0.1), (7, 0.0, 1.9)],
)
def test_losses_and_weights_are_those_of_the_trainer(dimension, noise, lr):
    problem = Quadratic(dimension, noise)
    rounds = 500
    compiled, each = (CompiledQuadratic(problem, 5, lr=lr, seed=3) for _ in range(2))
    torchs = Trainer(problem, 5, lr=lr, seed=3)
    at_once = compiled.train_rounds(rounds)
    np.testing.assert_allclose(
        at_once,
        [torchs.step() for _ in range(rounds)],
        rtol=1e-10,
        atol=1e-24,
    )
    np.testing.assert_allclose(point(compiled), point(torchs), rtol=1e-10, atol=1e-14)
    assert at_once.tolist() == [loss for k in (1, 2, 197, 300) for loss in each.train_rounds(k)]
    assert point(compiled).tobytes() == point(each).tobytes()
    assert compiled.round == each.round == rounds
    assert compiled.config() != torchs.config()  # their trajectories are not mixed
    for name, figure in torchs.evaluate().items():
        assert compiled.evaluate()[name] == pytest.approx(figure, rel=1e-6, abs=1e-14)


def test_it_ends_before_a_loss_that_is_not_finite():
    trainer = CompiledQuadratic(Quadratic(), 5, lr=1e30)
    losses = trainer.train_rounds(100)
    before = point(trainer)
    assert np.isfinite(losses).all()
    assert trainer.round == len(losses) < 20
    with pytest.raises(FloatingPointError, match=f"in round {len(losses) + 1}: lower lr"):
        trainer.train_rounds(100)
    assert (point(trainer).tobytes(), trainer.round) == (before.tobytes(), len(losses))
