"""Logit actions: rounding by largest remainder, and the wrapped envs under the checkers of two libraries."""

import itertools
import json
import pickle
from fractions import Fraction

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.env_checker import check_env as gymnasium_check_env
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy.special import softmax

import ata_gym  # noqa: F401 - registers the ids
from ata_gym.envs.interface.shares import largest_remainder
from ata_gym.envs.wrappers import LogitActions, VectorLogitActions

ALLOCATION = "ata_gym/TaskAllocation-v0"
POOL = {"family": "exponential", "scale": [1.0, 2.0, 4.0, 8.0]}

weights = hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(0, 1e300)).filter(lambda w: w.max() > 0)
logits = hnp.arrays(np.float64, st.integers(1, 8), elements=st.floats(-20, 20))
budgets = st.integers(1, 60)


def make(env_id=ALLOCATION, **kwargs):
    return gym.make(env_id, **({"pool": POOL, "budget": 6, "horizon": 4} | kwargs))


# --- rounding ---


@given(st.lists(st.integers(0, 12), min_size=1, max_size=7).filter(any), budgets)
def test_rounding_equals_exact_rational_arithmetic(shares, budget):
    real = [Fraction(budget * w, sum(shares)) for w in shares]
    remainders = [q % 1 for q in real]
    # Unequal shares with equal remainders may be a rounding error apart in floating point.
    assume(len(set(remainders)) == len(set(real)))
    tasks = [int(q) for q in real]
    for i in sorted(range(len(real)), key=lambda i: (-remainders[i], i))[: budget - sum(tasks)]:
        tasks[i] += 1
    assert largest_remainder(shares, budget).tolist() == tasks


@given(weights, budgets)
def test_rounding_stays_within_one_of_the_real_shares(shares, budget):
    tasks = largest_remainder(shares, budget)
    real = budget * (shares / shares.max()) / (shares / shares.max()).sum()
    assert tasks.dtype == np.int64
    assert tasks.sum() == budget
    assert tasks.min() >= 0
    assert np.abs(tasks - real).max() < 1 + 1e-9


@given(weights, budgets)
def test_larger_shares_get_no_fewer_tasks(shares, budget):
    tasks = largest_remainder(shares, budget)
    for i, j in itertools.permutations(range(len(shares)), 2):
        if shares[i] > shares[j] * (1 + 1e-12) + 1e-300:  # a smaller lead may be lost in floating point
            assert tasks[i] >= tasks[j]


@given(logits, budgets, st.data())
def test_a_larger_logit_gets_no_fewer_tasks_than_before(x, budget, data):
    worker = data.draw(st.integers(0, len(x) - 1))
    raised = x.copy()
    raised[worker] += data.draw(st.floats(1e-3, 20))
    before, after = (largest_remainder(softmax(v), budget) for v in (x, raised))
    assert after[worker] >= before[worker]


@given(logits, budgets, st.randoms(use_true_random=False))
def test_rounding_follows_a_permutation_of_the_workers(x, budget, random):
    remainders = np.sort(budget * softmax(x) % 1)
    assume(remainders[0] > 1e-9 and remainders[-1] < 1 - 1e-9)
    assume((np.diff(remainders) > 1e-9).all())
    order = list(range(len(x)))
    random.shuffle(order)
    assert np.array_equal(largest_remainder(softmax(x[order]), budget), largest_remainder(softmax(x), budget)[order])


@given(budgets, st.integers(1, 9))
def test_ties_go_to_the_lowest_index(budget, n):
    expected = [budget // n + (i < budget % n) for i in range(n)]
    assert largest_remainder(np.full(n, 0.1), budget).tolist() == expected


@given(hnp.arrays(np.float64, (2, 3, 4), elements=st.floats(1e-3, 1e3)), budgets)
def test_rows_are_rounded_alone(shares, budget):
    tasks = largest_remainder(shares, budget)
    assert tasks.shape == shares.shape
    for row in np.ndindex(2, 3):
        assert np.array_equal(tasks[row], largest_remainder(shares[row], budget))


def test_extreme_shares():
    assert largest_remainder([1e308] * 4, 4).tolist() == [1, 1, 1, 1]
    assert largest_remainder([5e-324, 0.0], 7).tolist() == [7, 0]
    assert largest_remainder([1e308, 5e-324], 7).tolist() == [7, 0]
    many = largest_remainder(np.random.default_rng(0).random(100_000), 1_000_000)
    assert many.sum() == 1_000_000


@pytest.mark.parametrize(
    ("shares", "budget", "sentence"),
    [
        ([np.nan, 1.0], 3, "shares must be finite"),
        ([np.inf, 1.0], 3, "shares must be finite"),
        ([-1.0, 1.0], 3, "shares must be finite numbers of at least 0"),
        (1.0, 3, r"shape \(\.\.\., n\)"),
        ([0.0, 0.0], 3, "a positive one"),
        ([[1.0], [0.0]], 3, "a positive one"),
        ([], 3, "a positive one"),
        ([1.0], 0, "budget"),
        ([1.0], -2, "budget"),
        ([1.0], 2.5, "budget"),
        ([1.0], True, "budget"),
    ],
)
def test_rounding_refuses_what_cannot_be_rounded(shares, budget, sentence):
    with pytest.raises(ValueError, match=sentence):
        largest_remainder(shares, budget)


# --- the wrapped env ---


@pytest.mark.parametrize("kwargs", [{}, {"scenario": "icml2025-cifar100", "pool": None, "budget": None}])
@pytest.mark.filterwarnings("ignore:.*is different from the unwrapped version.*:UserWarning")
def test_the_checkers_of_gymnasium_and_sb3_find_nothing(kwargs):
    sb3 = pytest.importorskip("stable_baselines3.common.env_checker")
    sb3.check_env(LogitActions(make(**kwargs)))
    gymnasium_check_env(LogitActions(make(**kwargs).unwrapped))


@given(x=hnp.arrays(np.float32, 4, elements=st.floats(-1, 1, width=32)), scale=st.floats(0.1, 50))
def test_actions_become_elements_near_the_softmax(x, scale):
    env = LogitActions(make(), scale=scale)
    tasks = env.action(x)
    assert tasks in env.env.action_space
    assert tasks.sum() == 6
    assert np.abs(tasks - 6 * softmax(scale * x.astype(np.float64))).max() < 1 + 1e-9


def test_an_action_reaches_the_env_as_an_allocation():
    env, plain = LogitActions(make(), scale=10.0), make()
    env.reset(seed=3)
    plain.reset(seed=3)
    x = np.array([0.3, 0.2, 0.1, -1.0], dtype=np.float32)
    seen, expected = env.step(x), plain.step(env.action(x))
    assert env.action(x).tolist() == [4, 1, 1, 0]  # of the shares 3.99, 1.47, 0.54, 0.00
    assert seen[1:] == expected[1:]
    assert all(np.array_equal(seen[0][key], expected[0][key]) for key in expected[0])


BAD_ACTIONS = [
    ([0.0, np.nan, 0.0, 0.0], "must be finite, without NaN"),
    ([0.0, np.inf, 0.0, 0.0], "must be finite, without NaN"),
    ([0.0, -np.inf, 0.0, 0.0], "must be finite, without NaN"),
    ([0.0, 0.0, 0.0], r"must have shape \(4,\), not \(3,\)"),
    (0.0, r"must have shape \(4,\), not \(\)"),
    (["a", "b", "c", "d"], r"must be real numbers from -1 to 1, of dtype float32, not <U1"),
    ([3, 1, 1, 1], "not int64: an allocation is an action of an env with"),
    ([[0.0], [0.0, 1.0]], r"must be numbers of shape \(4,\)"),
    (None, r"must have shape \(4,\)"),
]


@pytest.mark.parametrize(("action", "sentence"), BAD_ACTIONS)
def test_a_bad_action_leaves_the_env_as_it_was(action, sentence):
    env, undisturbed = LogitActions(make()), LogitActions(make())
    good = np.zeros(4, dtype=np.float32)
    for e in (env, undisturbed):
        e.reset(seed=1)
        e.step(good)
    with pytest.raises(ValueError, match=sentence):
        env.step(action)
    assert env.step(good)[1] == undisturbed.step(good)[1]


def test_finite_actions_outside_of_the_box_are_taken():
    env = LogitActions(make())
    assert env.action(np.array([-80.0, 3.0, 3.0, 3.0])).tolist() == [0, 2, 2, 2]


@pytest.mark.parametrize("scale", [0, -1.0, np.nan, np.inf, True, "10", None])
def test_the_scale_is_positive(scale):
    with pytest.raises(ValueError, match="scale must be a finite number above 0"):
        LogitActions(make(), scale=scale)


def test_only_envs_with_allocations_are_wrapped():
    with pytest.raises(TypeError, match=r"must have allocations as its actions, not Discrete\(2\)"):
        LogitActions(gym.make("CartPole-v1"))
    with pytest.raises(TypeError, match="must have allocations as its actions, not MultiDiscrete"):
        VectorLogitActions(gym.make_vec("CartPole-v1", num_envs=2))
    with pytest.raises(TypeError, match=r'a race has a total .* action="shares"'):
        LogitActions(make("ata_gym/TaskRace-v0"))


def test_the_spec_rebuilds_the_wrapped_env():
    env = LogitActions(make(), scale=3.0)
    for spec in (env.spec, EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
        again = gym.make(spec)
        assert isinstance(again, LogitActions)
        assert again.action_space == env.action_space
        x = np.array([0.5, -0.2, 0.9, 0.1], dtype=np.float32)
        assert np.array_equal(again.action(x), env.action(x))
    assert json.loads(env.spec.to_json())["additional_wrappers"][0]["kwargs"] == {"scale": 3.0}


def test_a_pickled_env_goes_on():
    env = LogitActions(make(), scale=2.0)
    env.reset(seed=5)
    twin = pickle.loads(pickle.dumps(env))
    x = np.array([0.5, -0.2, 0.9, 0.1], dtype=np.float32)
    assert env.step(x)[1] == twin.step(x)[1]


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_the_vector_wrapper_equals_a_vector_of_wrapped_envs(mode):
    envs = VectorLogitActions(
        gym.make_vec(ALLOCATION, num_envs=3, pool=POOL, budget=6, horizon=4, autoreset_mode=mode), scale=3.0
    )
    apart = SyncVectorEnv([lambda: LogitActions(make(), scale=3.0)] * 3, autoreset_mode=mode)
    assert envs.single_action_space == apart.single_action_space
    assert envs.action_space == apart.action_space
    envs.reset(seed=7)
    apart.reset(seed=7)
    envs.action_space.seed(0)
    for _ in range(9):
        x = envs.action_space.sample()
        together, expected = envs.step(x), apart.step(x)
        assert all(np.array_equal(together[0][key], expected[0][key]) for key in expected[0])
        assert all(np.array_equal(a, b) for a, b in zip(together[1:4], expected[1:4], strict=True))
    with pytest.raises(ValueError, match=r"must have shape \(3, 4\), not \(4,\)"):
        envs.step(np.zeros(4, dtype=np.float32))
    with pytest.raises(ValueError, match="must be finite"):
        envs.step(np.full((3, 4), np.nan, dtype=np.float32))
