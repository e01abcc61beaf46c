"""A training and its results: they are what was played, a kill changes nothing, and who cannot play
is refused.
"""

import json
import shutil
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import gymnasium as gym
import numpy as np
import polars as pl
import pytest
from scipy import stats

import ata_policies
from ata_gym import bench
from ata_gym.bench.report.headline import more_or_less
from ata_gym.bench.report.report import leave
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.store.folder import Folder, read_frame
from ata_gym.bench.store.note import read_note
from ata_gym.bench.store.provenance import provenance
from ata_gym.pools import exponential
from ata_gym.rl.agent import LearnedAgent, LearnedDispatchAgent
from ata_gym.rl.specification import policy_name
from ata_gym.scenarios import resolve
from ata_gym.scenarios.for_agents import SPLITS
from ata_gym.utils.files import manifest
from ata_policies.setting import Setting
from tests.bench.studies.learning.conftest import TINY
from tests.mutated import refused_by_field

pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
pytest.importorskip("sb3_contrib", reason="extra rl is not installed")
pytest.importorskip("tensorboard", reason="extra rl is not installed")

FILES = ("results/curve.parquet", "results/validation.parquet", "results/test.parquet")
ENDS = ["agent-start", "agent-end"]


class KilledError(KeyboardInterrupt):
    """Ends a run at any moment."""


def ender(at: int, end: Callable[[], None]) -> Callable[..., Any]:
    """In the place of the progress bars: ends the run once a training has so many steps."""
    remaining = [end]

    @contextmanager
    def bars(_totals: Any) -> Iterator[Callable[[str, int], None]]:
        def update(part: str, done: int) -> None:
            if part == "training" and done >= at and remaining:
                remaining.pop()()

        yield update

    return bars


def kill() -> None:
    raise KilledError


def press_ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def frames(path: Path) -> Any:
    """What a training has left in a folder."""
    from ata_gym.bench.studies.learning.experiment import Evaluations

    return Evaluations(*(read_frame(Folder(path).result(name)) for name in Evaluations._fields))


def test_each_part_of_the_training_is_evaluated_and_the_best_agent_is_kept_and_plays_by_name(
    trained,
):
    from ata_gym.bench.studies.learning.experiment import play, ratios
    from ata_gym.bench.studies.learning.training import make_agent

    learning, _, path = trained
    learned = frames(path)
    assert learned.curve["steps"].to_list() == [0, 64, 128]
    assert learned.curve.columns[:3] == ["steps", "cost/uta", "cost/ata-icml"]
    assert learned.curve["cost/uta"].n_unique() > 1
    assert read_note(path)["refusals"] == {}
    for split, played, more in (
        ("validation", learned.validation, []),
        ("test", learned.test, ["agent", *ENDS]),
    ):
        assert played["policy"].unique(maintain_order=True).to_list() == [
            *more,
            *learning.references(),
        ]
        seeds = [SPLITS[split].start + e for e in range(len(played) // played["policy"].n_unique())]
        assert played["seed"].unique().sort().to_list() == seeds
    name = policy_name("allocation", path)
    costs = {name: learned.test.filter(policy=name)["cost"].to_list() for name in ("agent", *ENDS)}
    assert play(name, learning.test)["cost"].to_list() == costs["agent"]
    on_validation = ratios(learned.validation, play(name, learning.validation))
    for reference, (mean, _, _) in on_validation.items():
        assert mean == learned.curve[f"cost/{reference}"].min()
    agent = make_agent(learning)
    fresh = play(learning.agent.policy_class(agent, agent.env.bare), learning.test, "agent-start")
    agent.env.close()
    assert fresh.equals(learned.test.filter(policy="agent-start"))
    assert costs["agent-start"] != costs["agent-end"]
    best = int(learned.curve["cost/uta"].arg_min())
    if best in {0, len(learned.curve) - 1}:
        assert costs["agent"] == costs[ENDS[best > 0]]


@pytest.mark.parametrize("best", [0, 1])
def test_the_agent_that_is_kept_is_a_row_with_its_steps_beside_the_first_and_the_last(
    trained,
    tmp_path,
    best,
):
    from ata_gym.bench.studies.learning.report import report_on

    _, _, path = trained
    learned = frames(path)
    curve = learned.curve.with_columns(
        pl.when(pl.int_range(pl.len()) == best).then(0.1).otherwise(1.0).alias("cost/uta"),
    )
    note = {**read_note(path), "refusals": {"oracle": "why"}}
    made = report_on(note, learned._replace(curve=curve))
    left = leave(made, tmp_path)
    rows = {row[0]: row[1:] for row in made.tables[0].rows}
    assert [rows[name][0] for name in ("agent", *ENDS, "uta")] == [str(64 * best), "0", "128", "-"]
    if best == 0:
        kept = "before training, after 0 steps"
    else:
        kept = "after 64 of 128 steps"
    assert made.findings.startswith(
        f"The agent is kept as it was {kept}, the best of 3 evaluations",
    )
    assert made.findings.endswith("\nleft out: oracle (why)")
    start, end = (learned.test.filter(policy=name)["cost"].to_numpy() for name in ENDS)
    logs = np.log(end / start)
    interval = stats.ttest_1samp(logs, 0.0).confidence_interval(0.95)
    ratio = Estimate(*np.exp([logs.mean(), interval.low, interval.high]))
    assert f"  the end compared with the start: {more_or_less(ratio, 'cost')}\n" in made.findings
    for moment in ("start", "end"):
        assert f"  the agent at the {moment}, compared with uta, which " in made.findings
    if best:
        return
    cost = {name: learned.test.filter(policy=name)["cost"].to_numpy() for name in ("agent", "uta")}
    summary = made.summary.filter(quantity="cost", over="uta")
    found = {
        name: estimate for name, *estimate in summary.select("policy", "mean", "low", "high").rows()
    }
    assert found["uta"] == [1, 1, 1]
    assert found["agent"][0] == pytest.approx(np.prod(cost["agent"] / cost["uta"]) ** 0.25)
    assert found["dynamic-oracle"] == min(found.values())
    assert all(low <= mean <= high for mean, low, high in found.values())
    assert rows["agent"][1] == show(found["agent"][0], found["agent"][2])
    assert "oracle is dynamic-oracle" in (tmp_path / "table.md").read_text("utf-8")
    for name in ("plots/learning.png", "plots/learning.svg", "table.csv", "curve.csv"):
        assert (tmp_path / name).stat().st_size > 0
    assert tmp_path / "report.html" in left.tables
    assert "Cost while the agent is trained" in (tmp_path / "report.html").read_text("utf-8")


def test_agents_and_references_are_compared_on_the_test_seeds_also_from_the_folder_alone(trained):
    _, results, path = trained
    test = frames(path).test
    for name in ("agent", "distribution-learner"):
        ratios = test.filter(policy=name)["cost"] / test.filter(policy="uta")["cost"]
        ratio = results.compare(name, "uta").ratio.mean
        assert ratio == pytest.approx(np.exp(np.log(ratios.to_numpy()).mean()))
        row = results.table().filter(policy=name, quantity="cost", over="uta")
        assert row["mean"].item() == pytest.approx(ratio)
    assert results.compare("default", "uta").sentence.startswith("distribution-learner compared")
    assert results.records.drop("scenario").equals(test)
    again = bench.read(path)
    assert again.table().equals(results.table())
    assert again.content.findings == results.content.findings
    assert "ppo" in repr(again)


def test_the_function_is_the_training_and_leaves_nothing_without_a_folder(
    trained,
    tmp_path,
    monkeypatch,
):
    _, results, path = trained
    monkeypatch.chdir(tmp_path)
    alone = bench.learn(
        "allocation",
        "drawn-6-v1",
        price=0.1,
        rounds=5,
        hyperparameters=TINY["ppo"],
        steps=128,
        rows=4,
        seed=3,
        evaluations=2,
        validation=3,
        test=4,
    )
    assert alone.table().equals(results.table())
    assert alone.files == alone.pictures == []
    assert not [*tmp_path.iterdir()]
    assert alone.plot()._repr_png_().startswith(b"\x89PNG")
    with pytest.raises(ValueError, match=r"price is 0\.1 there and 0\.2 here"):
        bench.learn(rounds=5, rows=4, price=0.2, hyperparameters=TINY["ppo"], out=path)


def test_a_reference_that_cannot_play_is_left_out(learning, monkeypatch):
    from ata_gym.bench.studies.learning.experiment import playable

    monkeypatch.setattr(
        "ata_gym.bench.studies.learning.experiment._ORACLES", {"allocation": "oracle"}
    )
    names, refusals = playable(learning())
    assert "dynamic oracle" in refusals["oracle"]
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
def test_each_algorithm_goes_on_after_a_kill_and_after_ctrl_c_and_ends_with_the_same_bytes(
    learning,
    learn_in,
    tmp_path,
    monkeypatch,
    env,
    algorithm,
    action,
):
    monkeypatch.setattr(
        "ata_gym.bench.studies.learning.experiment.Learning.references", lambda _: ("uta",)
    )
    tiny = learning(env, algorithm, action, steps=96)
    whole = tmp_path / "whole"
    parts = tmp_path / "parts"
    checkpoint = parts / "checkpoints" / "training.pt"
    saved = b""
    learn_in(tiny, whole)
    for at, end, error, save_every in (
        (40, kill, KilledError, 0.0),
        (60, press_ctrl_c, KeyboardInterrupt, 1e9),
    ):
        with monkeypatch.context() as patch:
            patch.setattr("ata_gym.bench.studies.learning.study.progress_bars", ender(at, end))
            with pytest.raises(error):
                learn_in(tiny, parts, save_every=save_every)
        with pytest.raises(ValueError, match=r"the training has not finished in .*, so there is"):
            bench.read(parts)
        assert checkpoint.read_bytes() != saved
        saved = checkpoint.read_bytes()
        assert not (parts / "results" / "curve.parquet").exists()
    learn_in(tiny, parts)
    assert all((whole / name).read_bytes() == (parts / name).read_bytes() for name in FILES)
    assert (parts / "agent.zip").read_bytes() == (whole / "agent.zip").read_bytes()
    assert not list((parts / "checkpoints").iterdir())
    before = {name: (parts / name).stat().st_mtime_ns for name in (*FILES, "agent.zip")}
    learn_in(tiny, parts)
    assert before == {name: (parts / name).stat().st_mtime_ns for name in before}


def test_an_agent_for_any_size_plays_other_numbers_of_workers_and_one_of_a_fixed_size_only_that(
    trained,
    learning,
    learn_in,
    tmp_path,
):
    *_, path = trained
    made = LearnedAgent(Setting(n=9, budget=20), folder=str(path))
    row = {"worker": [[-1] * 20], "duration": [[0.0] * 20], "elapsed": [[0.0] * 9]}
    action, _ = made.predict({name: np.array(value) for name, value in row.items()})
    assert (action.shape, action.sum()) == ((1, 9), 20)
    learn_in(learning(algorithm="dqn", steps=32, evaluations=1), tmp_path)
    LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    with pytest.raises(ValueError, match="for 6 workers and a budget of 8, not for 9 and 20"):
        LearnedAgent(Setting(n=9, budget=20), folder=str(tmp_path))


def test_the_agent_is_a_file_of_the_library_without_what_differs_from_run_to_run(trained):
    from stable_baselines3 import PPO

    *_, path = trained
    agent = PPO.load(path / "agent.zip", device="cpu")
    assert (agent.num_timesteps, agent.observation_space.shape) == (128, (6, 20))
    assert agent.predict(np.zeros((1, 6, 20), np.float32), deterministic=True)[0].shape == (1, 6)
    with ZipFile(path / "agent.zip") as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}
        data = archive.read("data").decode()
    assert " at 0x" not in data
    assert not {"start_time", "ep_info_buffer", "_num_timesteps_at_start"} & json.loads(data).keys()


def test_an_agent_that_was_trained_with_latencies_sees_them(learning, learn_in, tmp_path):
    late = learning(steps=32, evaluations=1)
    pool = exponential(np.ones(6)).with_latency(np.arange(6.0))
    late = replace(late, scenario=resolve(pool=pool, budget=8, horizon=5))
    learn_in(late, tmp_path)
    policy = LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    assert policy.uses_latency
    for latency in (None, np.arange(6.0)):
        env = gym.make("ata_gym/TaskAllocation-v0", pool=pool.with_latency(latency), budget=8)
        observation, _ = env.reset(seed=0)
        action, state = policy.predict(observation)
        action, _ = policy.predict(env.step(action)[0], state)
        assert action.sum() == 8


def test_a_configuration_whose_fields_hold_something_else_is_refused_by_file_and_field(
    trained,
    tmp_path,
):
    *_, path = trained
    shutil.copy(path / "agent.zip", tmp_path)
    config = json.loads((path / "config.json").read_text())
    own = ("env", "algorithm", "action", "seed", "n", "latency", "budget")
    kept = {**{name: config[name] for name in own}, "hyperparameters": {"policy_kwargs": {}}}
    (tmp_path / "config.json").write_text(json.dumps(kept))
    read = lambda: LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))  # noqa: E731
    assert refused_by_field(tmp_path / "config.json", read) <= {
        "seed",
        "n",
        "budget",
        "hyperparameters.policy_kwargs",
    }


def test_a_note_is_refused_by_file_and_field(trained, tmp_path, monkeypatch):
    *_, path = trained
    out = shutil.copytree(path, tmp_path / "out")
    (out / manifest.NAME).unlink()
    # pages take most of the time
    monkeypatch.setattr("ata_gym.bench.studies.learning.report.summarise", lambda test: test)
    about = json.loads((out / "about.json").read_text("utf-8"))
    about["policies"] = about["policies"][:1]
    (out / "about.json").write_text(json.dumps(about), "utf-8")
    accepted = refused_by_field(out / "about.json", lambda: bench.read(out))
    assert {name for name in accepted if ".facts." not in name} == {"price", "lower_bound"}


def test_a_folder_without_an_agent_is_refused(trained, tmp_path):
    *_, path = trained
    with pytest.raises(ValueError, match="holds no trained agent"):
        LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    with pytest.raises(
        ValueError,
        match=r"plays ata_gym/TaskAllocation-v0: name it .*:LearnedAgent:",
    ):
        LearnedDispatchAgent(Setting(n=6, budget=8), folder=str(path))
    with pytest.raises(ValueError, match="folder"):
        ata_policies.make("ata_gym.rl.agent:LearnedAgent", gym.make("ata_gym/TaskAllocation-v0"))
    shutil.copy(path / "config.json", tmp_path)
    (tmp_path / "agent.zip").write_bytes((path / "agent.zip").read_bytes()[:-100])
    with pytest.raises(ValueError, match="does not hold the weights of this agent"):
        LearnedAgent(Setting(n=6, budget=8), folder=str(tmp_path))
    codes = [provenance(policy_name("allocation", folder))["code"] for folder in (path, tmp_path)]
    assert codes[0] != codes[1]  # results are told apart by the weights of the agent
