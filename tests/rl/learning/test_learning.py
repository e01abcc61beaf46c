"""A training and its results: they are what was played, and a kill changes nothing."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

from ata_gym.bench.report.headline import more_or_less
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.scenarios.for_agents import SPLITS
from tests.fuzz.kills import wait_for_group
from tests.waiting import PATIENCE, until

pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="extra rl is not installed")
pytest.importorskip("tensorboard", reason="extra rl is not installed")

FILES = ("results/curve.parquet", "results/validation.parquet", "results/test.parquet")
ENDS = ["agent-start", "agent-end"]


class KilledError(Exception):
    """Ends a run at any moment."""


def killer(at: int) -> Callable[[str, int], None]:
    """Progress that ends a run in training."""

    def progress(part: str, done: int) -> None:
        if part == "training" and done >= at:
            raise KilledError

    return progress


def same_results(one: Path, other: Path) -> bool:
    return all((one / name).read_bytes() == (other / name).read_bytes() for name in FILES)


def same_agents(one: Path, other: Path) -> bool:
    """Whether the best agents are the same, and the optimizers as the last rollout left them."""
    import torch
    from stable_baselines3.common.save_util import load_from_zip_file

    from ata_gym.utils.trees import leaves

    mine, theirs = (leaves(load_from_zip_file(folder / "agent.zip", load_data=False)[1]) for folder in (one, other))
    pairs = [(torch.as_tensor(a), torch.as_tensor(b)) for (_, a), (_, b) in zip(mine, theirs, strict=True)
             if not isinstance(a, bool | str | type(None))]  # fmt: skip
    return len(pairs) > 20 and all(torch.equal(a, b) for a, b in pairs)


def test_the_curve_has_an_evaluation_at_each_part_of_the_training_and_the_splits_are_played_on_their_seeds(trained):
    learning, learned, _ = trained
    assert learned.curve["steps"].to_list() == [0, 64, 128, 192, 256]
    assert learned.curve.columns[:3] == ["steps", "cost/uta", "cost/ata-icml"]
    assert learned.curve["cost/uta"].n_unique() > 1
    assert learned.left_out == {}
    for split, played, more in (("validation", learned.validation, []), ("test", learned.test, ["agent", *ENDS])):
        assert played["policy"].unique(maintain_order=True).to_list() == [*more, *learning.references()]
        seeds = [SPLITS[split].start + e for e in range(len(played) // played["policy"].n_unique())]
        assert played["seed"].unique().sort().to_list() == seeds


def test_the_best_agent_on_validation_is_kept_and_plays_by_name_as_in_the_results(trained):
    from ata_gym.rl.learning.experiment import play, ratios
    from ata_gym.rl.learning.specification import policy_name

    learning, learned, path = trained
    name = policy_name("allocation", path)
    on_test = play(name, learning.test)
    assert on_test["cost"].to_list() == learned.test.filter(policy="agent")["cost"].to_list()
    on_validation = ratios(learned.validation, play(name, learning.validation))
    for reference, (mean, _, _) in on_validation.items():
        assert mean == learned.curve[f"cost/{reference}"].min()


def test_the_agents_before_and_after_training_are_played_on_the_test_seeds_too(trained):
    from ata_gym.rl.learning.experiment import play
    from ata_gym.rl.learning.training import make_agent

    learning, learned, _ = trained
    agent = make_agent(learning)
    fresh = play(learning.agent.player(agent, agent.env.bare), learning.test, "agent-start")
    agent.env.close()
    assert fresh.equals(learned.test.filter(policy="agent-start"))
    costs = {name: learned.test.filter(policy=name)["cost"].to_list() for name in ("agent", *ENDS)}
    assert costs["agent-start"] != costs["agent-end"]
    best = int(learned.curve["cost/uta"].arg_min())
    if best in {0, len(learned.curve) - 1}:
        assert costs["agent"] == costs[ENDS[best > 0]]


@pytest.mark.parametrize("best", [0, 2])
def test_the_agent_that_is_kept_is_a_row_with_its_steps_beside_the_first_and_the_last(trained, tmp_path, best):
    from ata_gym.rl.learning.report import report

    learning, learned, _ = trained
    curve = learned.curve.with_columns(
        pl.when(pl.int_range(pl.len()) == best).then(0.1).otherwise(1.0).alias("cost/uta")
    )
    made = report(learning, learned._replace(curve=curve, left_out={"oracle": "why"}), tmp_path)
    rows = {row[0]: row[1:] for row in made.tables[0].rows}
    assert [rows[name][0] for name in ("agent", *ENDS, "uta")] == [str(64 * best), "0", "256", "-"]
    kept = "before training, after 0 steps" if best == 0 else "after 128 of 256 steps"
    assert made.remark.startswith(f"The agent that is kept is that {kept}, the best of 5 evaluations")
    assert made.remark.endswith("\nleft out: oracle (why)")
    start, end = (learned.test.filter(policy=name)["cost"].to_numpy() for name in ENDS)
    logs = np.log(end / start)
    interval = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    ratio = Estimate(*np.exp([logs.mean(), interval.low, interval.high]))
    assert f"  the end beside the start: {more_or_less(ratio, 'cost')}\n" in made.remark
    assert "  the agent at the start, beside uta, the uniform policy: " in made.remark
    assert "  the agent at the end, beside uta, the uniform policy: " in made.remark
    if best:
        return
    cost = {name: learned.test.filter(policy=name)["cost"].to_numpy() for name in ("agent", "uta")}
    summary = made.summary.filter(quantity="cost", over="uta")
    found = {name: estimate for name, *estimate in summary.select("policy", "mean", "low", "high").rows()}
    assert found["uta"] == [1, 1, 1]
    assert found["agent"][0] == pytest.approx(np.prod(cost["agent"] / cost["uta"]) ** 0.25)
    assert found["dynamic-oracle"] == min(found.values())
    assert all(low <= mean <= high for mean, low, high in found.values())
    assert rows["agent"][1] == show(found["agent"][0], found["agent"][2])
    assert "oracle is dynamic-oracle" in (tmp_path / "table.md").read_text("utf-8")
    for name in ("learning.png", "learning.svg", "table.csv", "curve.csv"):
        assert (tmp_path / name).stat().st_size > 0


def test_a_reference_that_cannot_play_is_left_out(learning, monkeypatch):
    from ata_gym.rl.learning.experiment import playable

    monkeypatch.setattr("ata_gym.rl.learning.experiment._ORACLES", {"allocation": "oracle"})
    names, left_out = playable(learning())
    assert "dynamic oracle" in left_out["oracle"]
    assert [*names, "oracle"] == list(learning().references())


@pytest.mark.parametrize(
    ("env", "algorithm", "action"),
    [
        ("allocation", "ppo", "assign"),
        ("race", "a2c", "shares"),
        ("dispatch", "maskable-ppo", "start"),
        ("allocation", "dqn", "assign"),
    ],
)
def test_each_algorithm_goes_on_after_a_kill_and_ends_with_the_same_bytes(
    learning, learn_in, tmp_path, monkeypatch, env, algorithm, action
):
    monkeypatch.setattr("ata_gym.rl.learning.experiment.Learning.references", lambda _: ("uta",))
    tiny = learning(env, algorithm, action, steps=160, evaluations=2)
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    learn_in(tiny, whole)
    for at, save_every in ((60, 0.0), (130, 1e9)):
        with pytest.raises(KilledError):
            learn_in(tiny, parts, save_every=save_every, progress=killer(at))
        assert (parts / "checkpoints" / "training.pt").exists()
        assert not (parts / "results" / "curve.parquet").exists()
    learn_in(tiny, parts)
    assert same_results(whole, parts)
    assert same_agents(whole, parts)
    assert not list((parts / "checkpoints").iterdir())
    before = {name: (parts / name).stat().st_mtime_ns for name in (*FILES, "agent.zip")}
    learn_in(tiny, parts)
    assert before == {name: (parts / name).stat().st_mtime_ns for name in before}


LINE = "learn --rounds 5 --price 0.1 --steps 960 --rows 4 --evaluations 3 --validation 3 --test 4 --seed 3 " + " ".join(
    f"--hyperparameter {one}" for one in ("n_steps=8", "batch_size=16", "learning_rate=0.02", "n_epochs=2")
)


@pytest.mark.skipif(sys.platform == "win32", reason="needs the signals of POSIX")
def test_a_command_that_is_really_stopped_goes_on_and_ends_with_the_same_bytes(learning, learn_in, tmp_path):
    from typer.testing import CliRunner

    from ata_gym.cli import app

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    process = subprocess.Popen(
        [sys.executable, "-m", "ata_gym", *LINE.split(), "--save-every", "0", "--out", str(parts)],
        start_new_session=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    until((parts / "checkpoints" / "training.pt").exists, process)
    process.terminate()
    _, errors = process.communicate(timeout=PATIENCE)
    assert process.returncode == 143, errors
    assert errors.endswith("ata-gym: stopped by SIGTERM; the same command goes on from here\n")
    wait_for_group(process.pid)
    assert not (parts / "results" / "curve.parquet").exists()
    done = CliRunner().invoke(app, [*LINE.split(), "--out", str(parts)])
    assert done.exit_code == 0, done.output
    learn_in(learning(steps=960, evaluations=3), whole)
    assert same_results(whole, parts)
    assert same_agents(whole, parts)
    assert pl.read_parquet(whole / "results" / "curve.parquet")["steps"].to_list() == [0, 320, 640, 960]
