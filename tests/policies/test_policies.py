"""Policies by name, and every one of them played: by its contract, rows alone, in an RL library, on
extreme times.
"""

import contextlib
import functools
import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import ata_policies
from ata_gym.changes import Jump, OnOff, Spot, Switch, Walk
from ata_gym.pools import concatenate, exponential, gamma, log_normal, shifted_exponential, trace
from ata_gym.scenarios import AtaConstants, Published, Scenario
from ata_gym.typing import Floats, Ints
from ata_gym.utils.trees import difference, leaves, map_leaves
from ata_policies import Policy, Setting, Totals, check_policy, default_name
from ata_policies.allocation.baselines import Uta
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES, ComposedPolicy
from ata_policies.registry import DEFAULTS, env_ids
from ata_policies.steps import decide, play_on

DISPATCH = "ata_gym/TaskDispatch-v0"
POOL = shifted_exponential([1.0, 2.0, 3.0], [1.0, 2.0, 3.0])


def made(name: str, env_id: str = "ata_gym/TaskAllocation-v0", **hyperparameters: Any) -> Any:
    return ata_policies.make(name, gym.make(env_id, pool=POOL, budget=7), **hyperparameters)


def test_every_policy_says_what_it_is() -> None:
    for found in map(ata_policies.load, ata_policies.names()):
        assert found.env_id in env_ids()
        assert 10 < len(found.summary()) <= 120
        assert all((found.source, found.constants, found.knows, found.assumes))
        assert {
            type(flag)
            for flag in (found.learns, found.priced, found.nonstationary, found.privileged)
        } == {bool}


def test_a_preset_says_what_its_parts_say_together() -> None:
    found = ata_policies.load("restarting-beta")
    assert found.source == "ours, after Thompson, 1933; Liu, Lee and Shroff, AAAI 2018"
    assert found.constants.startswith("weight 5, a prior of no weight; beta 1.5; Page-Hinkley")
    assert (found.knows, found.nonstationary) == ("nothing", True)
    assert not ata_policies.load("thompson-beta").nonstationary
    assert ata_policies.load("certainty-equivalence").constants == "none"


@pytest.mark.parametrize(
    ("name", "hyperparameters", "message"),
    [
        ("atta", {}, "did you mean ata"),
        ("no.such.module:Thing", {}, "there is no policy"),
        ("ata_policies.allocation.baselines:Nothing", {}, "there is no policy"),
        ("ata_policies.policy:Totals", {}, "Totals is no policy: make it a subclass"),
        ("uta", {"alpha": 1.0}, "does not take"),
        ("ata", {"alpha": -1.0}, "alpha"),
        ("ata", {"seed": -1}, "seed must be"),
    ],
)
def test_unknown_names_and_hyperparameters(
    name: str,
    hyperparameters: dict[str, Any],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        made(name, **hyperparameters)


def test_what_is_no_env_of_ours_is_refused() -> None:
    text = (
        "an env is needed here, not the text 'ata_gym/TaskAllocation-v0': make it first, by"
        " gymnasium.make"
    )
    other = "is not an env of ata_gym: make one with gymnasium.make"
    wrong: tuple[Any, ...] = ("ata_gym/TaskAllocation-v0", None, 3, gym.make("CartPole-v1"))
    for one, said in zip(
        wrong,
        (text, f"None {other}", f"3 {other}", "not an env of ata_gym"),
        strict=True,
    ):
        for asked in (
            lambda one=one: ata_policies.make("ata", one),
            lambda one=one: Setting.from_env(one),
        ):
            with pytest.raises(ValueError, match=said):
                asked()


def test_the_default_policy_of_an_env() -> None:
    for env_id in DEFAULTS:
        policy = made("default", env_id, seed=3)
        preset = ata_policies.load(default_name(env_id))
        assert isinstance(preset, ata_policies.Preset)
        assert (type(policy), policy.seed) == (preset.build, 3)
    assert ata_policies.load("default") is ata_policies.load(
        default_name("ata_gym/TaskAllocation-v0"),
    )
    with pytest.raises(ValueError, match="no default policy is named for ata_gym/TaskNothing-v0"):
        default_name("ata_gym/TaskNothing-v0")


@pytest.mark.parametrize("name", ["gta", "ata_policies.allocation.baselines:Uta"])
@pytest.mark.parametrize("env_id", env_ids())
def test_a_policy_is_made_for_its_own_env_alone(name: str, env_id: str) -> None:
    """However the env was made: by id or class, single or vector, wrapped or not."""
    found = ata_policies.load(name)
    assert name == "gta" or found is Uta
    single = gym.make(env_id, pool=POOL, budget=7, horizon=9)
    direct = type(single.unwrapped)(pool=POOL, budget=7)  # type: ignore[call-arg]
    vector = gym.make_vec(env_id, num_envs=2, pool=POOL, budget=7)
    for env in (single, direct, vector, gym.wrappers.RecordEpisodeStatistics(single)):
        if found.env_id == env_id:
            assert ata_policies.make(name, env).setting.n == 3
        else:
            with pytest.raises(
                ValueError,
                match=f"{found.__name__} plays {found.env_id}, and this env is {env_id}",
            ):
                ata_policies.make(name, env)


NAMES = ata_policies.names()
BY_KIND = (
    *(
        "ata",
        "thompson-beta",
        "kl-gamma",
        "catoni",
        "restarting-beta",
        "thompson:memory=window:unit=rounds",
    ),
    *(
        "cucb:memory=discount",
        "epsilon-uniform",
        "uta",
        "explore-then-commit",
        "exponentiated-gradient",
        "v-ids",
    ),
    *(
        "distribution-learner",
        "dynamic-oracle",
        "lb-bsp-federated",
        "lb-bsp-linear",
        "lb-bsp-gpu",
        "lb-bsp-profiled",
    ),
    *(
        "learned",
        "race",
        "race-backup",
        "race-dynamic-oracle",
        "dispatch",
        "dispatch-rest",
        "dispatch-dynamic-oracle",
    ),
)
"""At least one policy of each class, and one with each memory."""


def test_every_class_is_among_the_kinds() -> None:
    """And none overrides ``predict``, which is tested once for all."""
    made = [ata_policies.load(name) for name in NAMES]
    kinds = {one.build for one in made if isinstance(one, ata_policies.Preset)}
    assert {kind.predict for kind in kinds} == {Policy.predict}
    fixed = {
        "Ofta",
        "Oracle",
        "Gta",
        "DispatchGta",
        "DispatchOracle",
        "DispatchCaps",
        "RaceOracle",
        "RaceCaps",
    }
    alike = {"DynamicOfta", "RaceFastest"}  # to DynamicOracle and RaceBackup
    played = {ata_policies.load(name).build.__name__ for name in BY_KIND}  # type: ignore[union-attr]
    assert {kind.__name__ for kind in kinds} - fixed - alike == played


@pytest.mark.parametrize("name", NAMES)
def test_keeps_the_contract(name: str) -> None:
    """Legal, reproducible, the same alone as in a batch, and more; here its advice is an error
    too.
    """
    dispatch = "Dispatch" in ata_policies.load(name).env_id
    rounds = 4
    if name in BY_KIND:
        rounds = 6 if dispatch else 16
    check_policy(name, rounds=rounds)


WORKERS = st.one_of(
    st.builds(lambda mean: exponential([mean]), st.floats(0.1, 10.0)),
    st.builds(
        lambda shape, mean: gamma([shape], [mean / shape]),
        st.floats(0.3, 9.0),
        st.floats(0.1, 10.0),
    ),
    st.builds(
        lambda sigma, mu: log_normal([mu], [sigma]),
        st.floats(0.1, 2.0),
        st.floats(-1.0, 2.0),
    ),
    st.builds(lambda times: trace([times]), st.lists(st.floats(0.1, 10.0), min_size=1, max_size=9)),
)
CHANGES = (
    Switch(every=4),
    Walk(0.1, 0.7),
    OnOff(5.0, 0.2, 0.3),
    Jump(9, (0,), 6.0),
    Spot(0.1, 0.3, 0.5),
)
NARROW = Published(*[AtaConstants(alpha=0.1, eta=0.1)] * 2)
"""Bounds so narrow that scores are above 0 after few rounds."""


@pytest.mark.parametrize("name", BY_KIND)
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(
    workers=st.lists(WORKERS, min_size=1, max_size=4),
    changes=st.lists(st.sampled_from(CHANGES), max_size=2, unique=True),
    budget=st.integers(1, 6),
    price=st.sampled_from([0.0, 0.2]),
    seed=st.integers(0, 99),
)
def test_a_row_of_a_batch_is_the_row_alone(
    play,
    name,
    workers,
    changes,
    budget,
    price,
    seed,
) -> None:
    scenario = Scenario(
        concatenate(workers),
        budget,
        horizon=11,
        changes=tuple(changes),
        price=price,
        published=NARROW,
    )
    batch = play(name, 16, 3, seed, scenario=scenario)
    for e in (0, 2):
        alone = play(name, 16, 1, seed + e, scenario=scenario)
        np.testing.assert_array_equal(alone.actions[:, 0], batch.actions[:, e])
        row = map_leaves(lambda leaf, e=e: leaf[e : e + 1], batch.states[-1])
        assert difference(alone.states[-1], row) is None


@pytest.mark.parametrize("name", ["ata", "race", "dispatch"])
def test_stable_baselines3_evaluates_a_policy_over_a_monitored_env(name: str) -> None:
    """As it does its own agents; only policies that need privileged information cannot be driven
    so.
    """
    pytest.importorskip("stable_baselines3", reason="extra rl is not installed")
    from stable_baselines3.common.evaluation import evaluate_policy
    from stable_baselines3.common.monitor import Monitor

    env_id = ata_policies.load(name).env_id
    env, by_hand = (gym.make(env_id, scenario="icml2025-regret", horizon=20) for _ in range(2))
    policy = ata_policies.make(name, env, seed=3)
    env.reset(seed=3)
    returns, lengths = evaluate_policy(
        policy,
        Monitor(env),
        n_eval_episodes=2,
        return_episode_rewards=True,
    )
    steps = 20 * (env.unwrapped.budget if env_id == DISPATCH else 1)  # type: ignore[attr-defined]
    assert lengths == [steps, steps]
    by_hand.reset(seed=3)
    state = None
    for expected in returns:  # SB3 resets once more before the first episode
        episode = list(play_on(policy, by_hand, by_hand.reset()[0], state))
        state = episode[-1].state
        np.testing.assert_allclose(expected, sum(step.reward for step in episode))


SIZES = ((5, 7), (12, 3), (1, 4))
"""Workers and budget."""
ROUNDS = 14
EXTREMES = [0.0, 1e-300, 1.0, 1e300]


def durations(budget: int, rng: np.random.Generator) -> dict[str, Any]:
    """How long tasks take, by round and task, (rounds, B) or (rounds, 1)."""
    k = np.arange(ROUNDS)[:, None]
    ones = np.ones((ROUNDS, 1))
    return {
        "zero": 0.0 * ones,
        "smallest": 5e-324 * ones,
        "huge": 1e300 * ones,
        "largest": np.finfo(float).max * ones,
        "zero, then huge": np.where(k < ROUNDS // 2, 0.0, 1e300),
        "huge, then zero": np.where(k < ROUNDS // 2, 1e300, 0.0),
        "by turns": np.where(k % 2, 1e-300, 1e300),
        "one huge outlier": np.where(k == 6, 1e300, 1.0),
        "growing": 10.0 ** (-300 + 43 * k),
        "mixed": rng.choice(EXTREMES, (ROUNDS, budget)),
        "of any size": 10.0 ** rng.uniform(-300, 300, (ROUNDS, budget)),
    }


LENGTHS = list(durations(1, np.random.default_rng(0)))
WHOSE = ("as asked", "all of one", "of any")
CASES = [
    (length, WHOSE[(i + turn) % 3], bool((i // 3 + turn) % 2))
    for i, length in enumerate(LENGTHS)
    for turn in range(2)
]
"""Each is a row: how long tasks take, and by turns whose results they are, and whether tasks are
cancelled.
"""


@functools.cache
def feedback(n: int, budget: int) -> tuple[Floats, Ints, Floats]:
    """Durations and workers (rounds, cases, B), elapsed (rounds, cases, n); a worker of -1 is still
    to be filled in.
    """
    rng = np.random.default_rng(0)
    worker = np.zeros((ROUNDS, len(CASES), budget), np.int64)
    duration = np.zeros(worker.shape)
    elapsed = np.zeros((ROUNDS, len(CASES), n))
    for e, (length, whose, cancelled) in enumerate(CASES):
        duration[:, e] = durations(budget, rng)[length]
        anybody = np.sort(rng.integers(0, n, (ROUNDS, budget)))
        worker[:, e] = {"as asked": -1, "all of one": 0, "of any": anybody}[whose]
        if cancelled:
            elapsed[:, e] = rng.choice(EXTREMES, (ROUNDS, n))
        else:
            elapsed[:, e] = 0.0
    return duration, worker, elapsed


class NumbersOnly:
    def __init__(self, rule: Any) -> None:
        self.rule = rule
        self.needs_shape = rule.needs_shape

    def allocate(self, scores: Any, coming: Any) -> Any:
        assert not np.isnan(scores.score).any()
        assert scores.shape is None or not np.isnan(scores.shape).any()
        return self.rule.allocate(scores, coming)


def started(name: str, n: int, budget: int, rows: int, **hyperparameters: Any) -> tuple[Any, Any]:
    """A first observation, and a function that lets a policy act on one and fails at an illegal
    action or NaN.
    """
    pool = shifted_exponential(np.arange(1.0, n + 1), np.arange(1.0, n + 1))
    env: Any = gym.make_vec(ata_policies.load(name).env_id, num_envs=rows, pool=pool, budget=budget)
    policy: Any = ata_policies.make(name, env, **hyperparameters)
    if isinstance(policy, ComposedPolicy):
        policy.rule = NumbersOnly(policy.rule)  # type: ignore[assignment]
    state: Any = None

    def act(observation: Any) -> Any:
        nonlocal state
        action, state = decide(policy, env, observation, state)
        env.unwrapped.check_actions(action)
        policy.check_state(state, rows)  # it could be saved and loaded
        for part, leaf in leaves(state.belief):
            assert leaf.dtype.kind != "f" or not np.isnan(leaf).any(), f"{part} has NaN: {leaf}"
        return action

    return env.reset(seed=0)[0], act


def play_legally(name: str, n: int, budget: int, **hyperparameters: Any) -> None:
    observation, act = started(name, n, budget, len(CASES), **hyperparameters)
    for duration, worker, elapsed in zip(*feedback(n, budget), strict=True):
        action = act(observation)
        filled = worker.copy()
        for e in np.flatnonzero(worker[:, 0] < 0):
            filled[e] = np.resize(np.repeat(np.arange(n), action[e]), budget)
        observation = {"worker": filled, "duration": duration, "elapsed": elapsed}


@pytest.mark.parametrize(
    "name",
    [name for name in BY_KIND if ata_policies.load(name).env_id != DISPATCH],
)
def test_actions_of_every_kind_of_policy_stay_legal(name: str) -> None:
    for n, budget in SIZES:
        play_legally(name, n, budget)


COMBINATIONS = list(itertools.product(ESTIMATES, MEMORIES))


@pytest.mark.parametrize(("estimate", "memory"), COMBINATIONS)
def test_actions_of_every_composition_stay_legal(estimate: str, memory: str) -> None:
    place = COMBINATIONS.index((estimate, memory))
    n, budget = SIZES[place % 2]
    parts: dict[str, Any] = {"estimate": estimate, "memory": memory, "availability": True}
    if memory == "prior":
        counts = [1.0, 0.0, 1e300, 3.0, 1e-300]
        totals = [0.0, 0.0, 1e300, 1e300, 1e-300]
        parts["prior"] = Totals(np.resize(counts, (1, n)), np.resize(totals, (1, n)))
    for turn in range(len(RULES)):
        parts["rule"] = [*RULES][(place + turn) % len(RULES)]
        setting = ata_policies.Setting(n, budget, pool=shifted_exponential(np.ones(n), np.ones(n)))
        with contextlib.suppress(ValueError):  # they do not fit together
            ComposedPolicy(setting, **parts)
            return play_legally("thompson", n, budget, **parts)
    return None


@pytest.mark.parametrize(
    "name",
    [name for name in ata_policies.names() if ata_policies.load(name).env_id == DISPATCH],
)
def test_actions_of_dispatch_stay_legal(name: str) -> None:
    lengths = np.array(
        [length.ravel() for length in durations(1, np.random.default_rng(0)).values()],
    )
    for n, budget in ((3, 5), (1, 3), (6, 2)):
        rng = np.random.default_rng(n)
        rows = len(lengths)
        observation, act = started(name, n, budget, rows)
        for k, done in itertools.product(range(0, ROUNDS, 2), range(budget)):
            act(observation)
            running = rng.integers(0, 2, (rows, n)).astype(np.int8) * (done > 0)
            observation = {
                "worker": rng.integers(0, n, (rows, 1)),
                "duration": lengths[:, [k]],
                "elapsed": lengths[:, [k]] * rng.integers(0, 2, (rows, n)) * (done == 0),
                "missing": np.full((rows, 1), budget - done),
                "started": np.maximum(rng.integers(0, budget + 1, (rows, n)) * (done > 0), running),
                "running": running,
                "age": lengths[:, [k]] * running,
            }
