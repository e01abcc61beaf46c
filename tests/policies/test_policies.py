"""Every policy of the registry, walked in whole; and each published rule by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import ata_policies
from ata_gym import allocate, proxy_loss, proxy_optimal
from ata_gym.bench import checkpoint
from ata_gym.pools import exponential, log_normal, shifted_exponential
from ata_policies import Belief, Policy, Setting, check_policy, default_name
from ata_policies.ata import Ata, score
from ata_policies.registry import DEFAULTS, env_ids

POOL = shifted_exponential([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])
NAMES = ata_policies.names()


def run(name: str, rows: int, rounds: int, seed: int = 0, **hyperparameters: Any) -> list[np.ndarray]:
    env = gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, pool=POOL, budget=7)
    policy = ata_policies.make(name, env, seed=seed, **hyperparameters)
    observation, _ = env.reset(seed=seed)
    state, actions = None, []
    for _ in range(rounds):
        action, state = policy.predict(observation, state)
        observation = env.step(action)[0]
        actions.append(action)
    return actions


def test_the_published_policies_are_registered() -> None:
    assert {"ata", "ata-empirical", "ata-icml", "ata-empirical-icml", "uta", "ofta", "gta"} <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_contract(name: str) -> None:
    """Legal, reproducible, the same alone as in a batch, and more; here its advice is an error too."""
    check_policy(name)


@pytest.mark.parametrize("name", NAMES)
def test_goes_on_from_a_checkpoint(name: str, tmp_path: Path) -> None:
    """As the bench saves it, to plain arrays, and restores it in the form of the first state."""
    env = gym.make_vec(ata_policies.load(name).env_id, num_envs=2, pool=POOL, budget=7)
    first, (observation, _) = ata_policies.make(name, env), env.reset(seed=0)
    _, form = first.predict(observation)
    seen, state, actions = [], None, []
    for _ in range(60):
        seen.append(observation)
        action, state = first.predict(observation, state)
        actions.append(action)
        if len(actions) == 30:
            checkpoint.save(tmp_path / "state.npz", checkpoint.flatten("state", state))
        observation = env.step(action)[0]
    again, state = (
        ata_policies.make(name, env),
        checkpoint.restore("state", form, checkpoint.load(tmp_path / "state.npz")),
    )
    for observation, expected in zip(seen[30:], actions[30:], strict=True):
        action, state = again.predict(observation, state)
        np.testing.assert_array_equal(action, expected)


def test_uta_draws_afresh_in_each_episode() -> None:
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=2, pool=POOL, budget=7, horizon=3)
    policy, state, starts = ata_policies.make("uta", env), None, []
    for _ in range(5):
        action, state = policy.predict(env.reset()[0], state)
        starts.append(action.tolist())
    assert len({str(start) for start in starts}) > 1


def test_scores_by_hand() -> None:
    """K = 2 and 8 tasks of mean 3 and 5 in round 3: L = ln 18."""
    belief = Belief(np.array([[2.0, 8.0, 0.0]]), np.array([[6.0, 40.0, 0.0]]))
    level = math.log(18)
    f = [math.sqrt(level / k) + level / k for k in (2, 8)]
    k = np.array([3])
    expected = [3 - 0.5 * f[0], 5 - 0.5 * f[1], 0.0]
    np.testing.assert_allclose(score(belief, k, 0.5, 0.0)[0], expected, rtol=1e-14)
    np.testing.assert_allclose(
        score(belief, k, 0.0, 0.1)[0], [3 * (1 - 0.1 * f[0]), 5 * (1 - 0.1 * f[1]), 0], rtol=1e-14
    )
    assert score(belief, k, 2.0, 0.0)[0].tolist() == [0.0, max(5 - 2 * f[1], 0.0), 0.0]  # clipped


@pytest.mark.parametrize(
    ("name", "hyperparameter", "factor"),
    [
        ("ata", "alpha", 4 * math.e),
        ("ata-icml", "alpha", 2),
        ("ata-empirical", "eta", 4 * math.e),
        ("ata-empirical-icml", "eta", 2),
    ],
)
def test_constants_and_where_they_come_from(name: str, hyperparameter: str, factor: float) -> None:
    def value(policy: Policy) -> float:
        v = getattr(policy, hyperparameter)
        radius = policy.absolute + policy.relative  # type: ignore[attr-defined]
        np.testing.assert_allclose(radius, factor * v)
        return float(v)

    env = gym.make("ata_gym/TaskAllocation-v0", scenario="icml2025-cifar100")
    assert value(ata_policies.make(name, env)) == {"alpha": 5916.0, "eta": 2.0}[hyperparameter]
    assert value(ata_policies.make(name, env, **{hyperparameter: 3.5})) == 3.5
    own = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=3)
    norms = POOL.psi1_norm(centred="icml" in name)
    expected = norms.max() if hyperparameter == "alpha" else (norms / POOL.mean()).max()
    np.testing.assert_allclose(value(ata_policies.make(name, own)), expected)
    heavy = gym.make("ata_gym/TaskAllocation-v0", pool=log_normal([0.0, 1.0], 1.0), budget=3)
    with pytest.raises(ValueError, match=f"give {hyperparameter}="):
        ata_policies.make(name, heavy)
    with pytest.raises(ValueError, match=f"give {hyperparameter}="):
        ata_policies.load(name)(Setting(n=3, budget=2))


def test_ata_follows_its_formula_along_a_run() -> None:
    """Every action with all scores positive is RAS of the formula on what was seen."""
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=7)
    policy = ata_policies.make("ata", env, alpha=0.01)
    observation, _ = env.reset(seed=0)
    state, counts, totals, checked = None, np.zeros(5), np.zeros(5), 0
    for k in range(1, 50):
        action, state = policy.predict(observation, state)
        if counts.all():
            ratio = math.log(2 * k * k) / counts
            s = totals / counts - 4 * math.e * 0.01 * (np.sqrt(ratio) + ratio)
            if (s > 0).all():
                np.testing.assert_array_equal(action, allocate(s, 7))
                checked += 1
        observation = env.step(action)[0]
        np.add.at(counts, observation["worker"], 1)
        np.add.at(totals, observation["worker"], observation["time"])
    assert checked > 40


@settings(max_examples=30)
@given(n=st.integers(1, 12), budget=st.integers(1, 30))
def test_uta_is_even_and_ofta_optimal(n: int, budget: int) -> None:
    pool = exponential(np.arange(1.0, n + 1))
    env = gym.make_vec("ata_gym/TaskAllocation-v0", num_envs=4, pool=pool, budget=budget)
    observation, _ = env.reset(seed=0)
    uta, _ = ata_policies.make("uta", env).predict(observation)
    assert (uta.sum(axis=1) == budget).all()
    assert uta.max() - uta.min() <= 1
    ofta, _ = ata_policies.make("ofta", env).predict(observation)
    np.testing.assert_array_equal(ofta, np.tile(proxy_optimal(pool, budget), (4, 1)))


@pytest.mark.parametrize("name", ["ata-icml", "ata-empirical-icml"])
def test_ata_learns(name: str) -> None:
    """With the ICML constants the allocation comes close to the optimum of the proxy, and uniform does not."""
    losses = proxy_loss(np.array(run(name, rows=4, rounds=4000)), POOL.mean()).mean(axis=1)
    best = proxy_loss(proxy_optimal(POOL, 7), POOL.mean())
    assert losses[-500:].mean() < 1.1 * best
    assert losses[:10].mean() > 1.5 * best


def test_ofta_without_a_pool() -> None:
    with pytest.raises(ValueError, match="needs an env whose pool is known"):
        ata_policies.load("ofta")(Setting(n=3, budget=2))


def test_unknown_names_and_hyperparameters() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=7)
    with pytest.raises(ValueError, match="did you mean ata"):
        ata_policies.make("atta", env)
    with pytest.raises(ValueError, match="there is no policy"):
        ata_policies.make("no.such.module:Thing", env)
    with pytest.raises(ValueError, match="there is no policy"):
        ata_policies.make("ata_policies.ata:Nothing", env)
    with pytest.raises(ValueError, match="does not take"):
        ata_policies.make("uta", env, alpha=1.0)
    with pytest.raises(ValueError, match="alpha"):
        ata_policies.make("ata", env, alpha=-1.0)
    with pytest.raises(ValueError, match="seed must be"):
        ata_policies.make("ata", env, seed=-1)
    with pytest.raises(ValueError, match="not an env of ata_gym"):
        ata_policies.make("ata", gym.make("CartPole-v1"))


def test_a_class_may_be_named_by_its_module() -> None:
    assert ata_policies.load("ata_policies.ata:Ata") is Ata
    with pytest.raises(ValueError, match="score is no policy: make it a subclass"):
        ata_policies.load("ata_policies.ata:score")


@pytest.mark.parametrize("env_id", DEFAULTS)
def test_the_default_policy_of_an_env(env_id: str) -> None:
    env = gym.make(env_id, scenario="icml2025-regret")
    policy = ata_policies.make("default", env, seed=3)
    assert type(policy) is ata_policies.load(default_name(env_id))
    assert policy.seed == 3


def test_default_is_no_name_without_an_env() -> None:
    with pytest.raises(ValueError, match=r"depends on the env; give its name: .* for ata_gym/TaskAllocation-v0"):
        ata_policies.load("default")
    with pytest.raises(ValueError, match="no default policy is named for ata_gym/TaskNothing-v0"):
        default_name("ata_gym/TaskNothing-v0")


@pytest.mark.parametrize("name", ["uta", "gta", "ata_policies.ata:Ata"])
@pytest.mark.parametrize("env_id", env_ids())
def test_a_policy_is_made_for_its_own_env_alone(name: str, env_id: str) -> None:
    """However the env was made: by id or class, single or vector, wrapped or not."""
    kind = ata_policies.load(name)
    single = gym.make(env_id, pool=POOL, budget=7, horizon=9)
    direct = type(single.unwrapped)(pool=POOL, budget=7)  # type: ignore[call-arg]
    vector = gym.make_vec(env_id, num_envs=2, pool=POOL, budget=7)
    for env in (single, direct, vector, gym.wrappers.RecordEpisodeStatistics(single)):
        if kind.env_id == env_id:
            assert isinstance(ata_policies.make(name, env), kind)
        else:
            with pytest.raises(ValueError, match=f"{kind.__name__} plays {kind.env_id}, and this env is {env_id}"):
                ata_policies.make(name, env)
