"""The plan and the network of ``distribution-learner``: who decides, and what it is worth."""

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import norm

import ata_policies
from ata_gym import changes, pools
from ata_gym.envs.interface.worker_features import MEMORY, RoundFeatures, WorkerMemory
from ata_policies.allocation.experts import Experts, _memory_of
from ata_policies.beliefs.distributions.bins import DistributionBelief
from ata_policies.learned.network import read_network
from ata_policies.learned.policy import WEIGHTS
from ata_policies.setting import Setting
from ata_policies.steps import play

WAVES = {
    "pool": pools.gamma(10.0, np.geomspace(1.0, 4.0, 12) / 10.0),
    "changes": [changes.Periodic(40, 0.9)],
    "budget": 24,
}


def vector_env(rows: int, horizon: int, **options) -> gym.vector.VectorEnv:
    return gym.make_vec(
        "ata_gym/TaskAllocation-v0",
        rows,
        vectorization_mode="vector_entry_point",
        horizon=horizon,
        **options,
    )


def steps_of(name: str, env: gym.vector.VectorEnv, seed: int = 0) -> list:
    return list(play(ata_policies.make(name, env), env, seed))


def empty(rows: int = 1, n: int = 3) -> Experts:
    return Experts.begin(read_network(WEIGHTS), rows, n)


def test_where_workers_stay_as_they_are_the_network_decides_nothing() -> None:
    env = vector_env(4, 120, scenario="icml2025-cifar100")
    plain = steps_of("distribution-learner:network=False", env)
    for step, without in zip(steps_of("default", env), plain, strict=True):
        np.testing.assert_array_equal(step.action, without.action)
        assert (step.state.plan.experts.decided == 2).all()


def test_where_levels_move_it_decides_and_costs_fall() -> None:
    """Waves of 40 rounds, 12 workers, 24 tasks, 16 seeds: at least 4 % less than the plan alone."""
    env = vector_env(16, 200, **WAVES)
    steps = steps_of("default", env)
    runtime = steps[-1].info["runtime"]
    alone = steps_of("distribution-learner:network=False", env)[-1].info["runtime"]
    assert np.exp(np.log(runtime / alone).mean()) < 0.96
    decided = np.array([step.state.plan.experts.decided for step in steps])
    assert ((decided == 0).any(axis=0) & (decided == 1).any(axis=0)).all()


@pytest.mark.parametrize("latency", [0.0, 3.0])
def test_costs_are_counted_for_who_decided(latency: float) -> None:
    """Against sums in plain loops: each compared round counts .99 times after the next one."""
    world = dict(WAVES)
    if latency > 0.0:
        world["pool"] = WAVES["pool"].with_latency(np.full(12, latency))
    env = vector_env(3, 60, **world, price=0.2)
    steps = steps_of("default", env)
    for row in range(3):
        rounds = [0.0, 0.0]
        logs = [0.0, 0.0]
        squares = 0.0
        for step in steps:
            experts = step.state.plan.experts
            np.testing.assert_allclose(experts.rounds[row], rounds, rtol=1e-12)
            np.testing.assert_allclose(experts.logs[row], logs, rtol=1e-9, atol=1e-12)
            np.testing.assert_allclose(experts.squares[row], squares, rtol=1e-9, atol=1e-12)
            decided = experts.decided[row]
            if decided == 2:
                continue
            log = np.log(-step.reward[row])
            rounds = [0.99 * number + (who == decided) for who, number in enumerate(rounds)]
            logs = [0.99 * total + log * (who == decided) for who, total in enumerate(logs)]
            squares = 0.99 * squares + log**2
        assert min(rounds) > 0.0


def test_the_chance_of_the_network_is_that_of_the_lesser_mean() -> None:
    logs = {0: [1.2, 1.0, 1.1, 0.9], 1: [0.8, 0.9]}
    experts = empty()._replace(
        rounds=np.array([[4.0, 2.0]]),
        logs=np.array([[sum(logs[0]), sum(logs[1])]]),
        squares=np.array([sum(x * x for x in logs[0] + logs[1])]),
    )
    within = 4 * np.var(logs[0]) + 2 * np.var(logs[1])
    error = np.sqrt((within + 0.1) / 7 * (1 / 5 + 1 / 3))
    lead = np.mean(logs[0]) - np.mean(logs[1])
    np.testing.assert_allclose(experts.chance_of_network(), norm.cdf(lead / error))
    # in another unit of time it is the same
    minutes = experts._replace(
        logs=experts.logs + np.log(60) * experts.rounds,
        squares=experts.squares + 2 * np.log(60) * experts.logs.sum(1) + 6 * np.log(60) ** 2,
    )
    np.testing.assert_allclose(minutes.chance_of_network(), experts.chance_of_network())
    for rounds in ([0.0, 3.0], [3.0, 0.0], [0.0, 0.0]):
        assert empty()._replace(rounds=np.array([rounds])).chance_of_network() == 0.5


def test_it_decides_as_often_as_its_chance_says() -> None:
    rows = 1_000
    experts = empty(rows)._replace(
        rounds=np.full((rows, 2), 10.0),
        logs=np.tile([10.3, 10.0], (rows, 1)),
        squares=np.full(rows, 21.0),
    )
    chance = experts.chance_of_network()[0]
    assert 0.55 < chance < 0.95
    uniforms = np.linspace(0.0, 1.0, rows, endpoint=False)[:, None] * np.ones(4)
    plan = np.tile([2, 2, 2], (rows, 1))
    asked = np.arange(rows) % 10 != 0
    tasks, after = experts.decide(
        read_network(WEIGHTS),
        RoundFeatures(budget=6),
        np.full(rows, 5),
        plan,
        np.ones((rows, 3), np.bool_),
        asked,
        uniforms,
    )
    assert (after.decided[~asked] == 2).all()
    np.testing.assert_array_equal(tasks[after.decided != 1], plan[after.decided != 1])
    assert (tasks.sum(axis=1) == 6).all()
    np.testing.assert_allclose((after.decided[asked] == 1).mean(), chance, atol=0.01)


def test_rows_do_not_depend_on_each_other() -> None:
    together = steps_of("default", vector_env(3, 50, **WAVES), 7)
    assert (together[-1].state.plan.experts.decided != 2).any()
    for row in range(3):
        env = gym.make("ata_gym/TaskAllocation-v0", horizon=50, **WAVES)
        policy = ata_policies.make("default", env, seed=row)
        for step, of_all in zip(play(policy, env, 7 + row), together, strict=True):
            np.testing.assert_array_equal(step.action, of_all.action[row])


def test_what_the_network_is_told_at_first_is_what_it_would_have_seen() -> None:
    """Counts and times exactly, logarithms and levels nearly, of steady workers."""
    rng = np.random.default_rng(0)
    belief = DistributionBelief.empty(1, 4)
    seen = WorkerMemory.empty(1, 4)
    none = np.zeros((1, 4))
    for _ in range(30):
        worker = np.sort(rng.integers(0, 3, (1, 9)))
        duration = (worker + 1.0) * rng.lognormal(0.0, 0.1, (1, 9))
        belief = belief.observe(worker, duration, none)
        seen = seen.observe(worker, duration, none)
    told = _memory_of(belief).workers
    for column in (MEMORY.results, MEMORY.busy, MEMORY.last, MEMORY.since):
        np.testing.assert_allclose(told[..., column], seen.workers[..., column], rtol=1e-12)
    for column in (MEMORY.recent, MEMORY.level, MEMORY.previous_level):
        np.testing.assert_allclose(told[..., column], seen.workers[..., column], rtol=0.25)
    np.testing.assert_allclose(
        told[..., MEMORY.log_mean], seen.workers[..., MEMORY.log_mean], atol=0.02
    )
    np.testing.assert_allclose(
        told[..., MEMORY.log_squares], seen.workers[..., MEMORY.log_squares], rtol=0.3
    )


@pytest.mark.parametrize(
    "setting",
    [
        Setting(3, 6, delay=2),
        Setting(3, 6, price=0.5, unit_costs=(1.0, 2.0, 3.0)),
    ],
)
def test_there_is_no_network_where_it_was_not_trained(setting: Setting) -> None:
    policy = ata_policies.registry.load("distribution-learner")(setting)
    assert policy.first_plan(2).experts == ()


def test_explain_says_who_decided() -> None:
    env = vector_env(4, 80, **WAVES)
    policy = ata_policies.make("default", env)
    texts = {
        decided: policy.describe_plan(step.state, row)
        for step in play(policy, env, 0)
        for row, decided in enumerate(step.state.plan.experts.decided)
    }
    assert "the plan decided, since levels move" in texts[0]
    assert "the network decided, since levels move; the network does with probability" in texts[1]
    assert "decided" not in texts[2]
