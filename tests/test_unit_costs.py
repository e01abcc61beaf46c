"""Workers whose time does not cost the same: envs, the search for the best allocation, and
policies.
"""

from itertools import product
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from typer.testing import CliRunner

import ata_policies
from ata_gym import optimal_allocation
from ata_gym.bench.store.folder import Folder
from ata_gym.bench.studies.benchmark_report import read_tasks
from ata_gym.cli import app
from ata_gym.pools import exponential, gamma
from ata_gym.theory.round_time.expected import expected_round_times

COSTS = [3.0, 0.5, 0.0, 1.0]
POOL = gamma(4.0, np.array([1.0, 2.0, 3.0, 6.0]) / 4)


def env(kind: str, **options: Any) -> Any:
    return gym.make(
        f"ata_gym/Task{kind}-v0",
        **{"pool": POOL, "budget": 9, "price": 0.2, "unit_costs": COSTS} | options,
    )


@pytest.mark.parametrize(("kind", "action"), [("Allocation", [4, 3, 2, 0]), ("Race", [9, 9, 9, 9])])
def test_worker_time_counts_each_worker_at_its_cost(kind: str, action: list[int]) -> None:
    plain = env(kind, unit_costs=None)
    costly = env(kind)
    for one in (plain, costly):
        one.reset(seed=1)
    total = 0.0
    for _ in range(3):
        seen, _, *_, before = plain.step(np.array(action))
        _, reward, *_, info = costly.step(np.array(action))
        busy = np.bincount(seen["worker"], seen["duration"], minlength=4) + seen["elapsed"]
        assert busy.sum() == pytest.approx(before["worker_time"])
        assert info["worker_time"] == pytest.approx(busy @ COSTS)
        assert reward == pytest.approx(-info["round_time"] - 0.2 * info["worker_time"])
        total += info["worker_time"]
        assert info["round_time"] == before["round_time"]
    assert info["total_worker_time"] == pytest.approx(total)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(0.0, 20.0), min_size=3, max_size=3), st.floats(0.0, 3.0))
def test_the_best_allocation_is_that_of_brute_force(costs: list[float], price: float) -> None:
    pool = exponential([1.0, 1.0, 2.5])  # two are alike but for what they cost
    each = np.array([a for a in product(range(6), repeat=3) if sum(a) == 5])
    brute = expected_round_times(pool, each) + price * (each * pool.mean() @ np.array(costs))
    found = optimal_allocation(pool, 5, price, costs)
    assert (found.cost, found.gap) == (pytest.approx(brute.min(), rel=1e-5), 0.0)


def play(name: str, rounds: int = 60, **options: Any) -> tuple[float, list[Any]]:
    game = env("Allocation", horizon=rounds, **options)
    actions = []
    cost = 0.0
    state = None
    policy = ata_policies.make(name, game)
    seen, _ = game.reset(seed=3)
    for _ in range(rounds):
        action, state = policy.predict(seen, state, privileged=game.unwrapped.conditions())
        seen, reward, *_ = game.step(action)
        actions.append(action.tolist())
        cost -= reward
    return cost, actions


def test_twice_the_cost_is_twice_the_price() -> None:
    assert (
        play("default", price=0.4, unit_costs=None)[1]
        == play("default", price=0.2, unit_costs=[2.0] * 4)[1]
    )


def test_policies_leave_dear_workers_and_use_cheap_ones() -> None:
    dear = {"price": 2.0, "unit_costs": [30.0, 1.0, 1.0, 1.0]}
    costs = {name: play(name, **dear) for name in ("default", "oracle", "dynamic-oracle", "ofta")}
    assert costs["oracle"][1] == costs["dynamic-oracle"][1]
    assert costs["oracle"][1][-1][0] == costs["default"][1][-1][0] == 0 < costs["ofta"][1][-1][0]
    assert costs["default"][0] < 1.3 * costs["oracle"][0] < 0.7 * costs["ofta"][0]


def test_an_allocator_keeps_dear_workers_out_and_workers_may_join() -> None:
    costs = {"dear": 40.0, "late": 40.0}
    allocator = ata_policies.Allocator(["dear", "cheap"], 6, price=1.0, unit_costs=costs)
    allocator.join("late")
    for _ in range(30):
        shares = allocator.allocate()
        allocator.observe({name: [1.0] * tasks for name, tasks in shares.items()})
    assert shares == {"dear": 0, "cheap": 6, "late": 0}
    with pytest.raises(ValueError, match="2 numbers of at least 0"):
        ata_policies.Allocator(["dear", "cheap"], 6, unit_costs={"dear": -1.0})


def test_a_command_reads_them(tmp_path: Path) -> None:
    words = [
        "bench",
        "--scenario",
        "five-workers",
        "--rounds",
        "40",
        "--seeds",
        "2",
        "--jobs",
        "1",
        "--price",
        "1",
    ]
    words += ["--policies", "ofta,oracle", "--out", str(tmp_path / "run"), "--unit-costs"]
    made = CliRunner().invoke(app, [*words, "40,1,1,1,1"])
    assert made.exit_code == 0, made.output
    _, tasks = read_tasks(Folder(tmp_path / "run"), ["oracle"])["oracle"]
    assert "of which a unit counts 1 to 40" in (tmp_path / "run" / "about.json").read_text()
    assert tasks[:, 0].sum() == 0 < tasks[:, 1].sum()
    assert "--unit-costs must be numbers" in CliRunner().invoke(app, [*words, "x"]).output
    assert "5 numbers of at least 0" in CliRunner().invoke(app, [*words, "1,2"]).output


def test_what_cannot_count_them_is_refused() -> None:
    with pytest.raises(ValueError, match="4 numbers of at least 0, one for each worker"):
        env("Allocation", unit_costs=[1.0, 2.0])
    with pytest.raises(ValueError, match="4 numbers of at least 0"):
        env("Allocation", unit_costs=[1.0, 2.0, -1.0, 1.0])
    with pytest.raises(ValueError, match="play TaskAllocation-v0 or TaskRace-v0"):
        env("Dispatch")
    for name in ("race", "learned"):
        game = env(ata_policies.load(name).env_id.split("Task")[1][:-3])
        with pytest.raises(ValueError, match="every worker's time to cost the same"):
            ata_policies.make(name, game)
    ata_policies.make("race", env("Race", price=0.0))
