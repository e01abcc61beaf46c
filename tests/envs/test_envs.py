"""The contracts of the envs: arguments, ids, rewards, seeds, specs, steps out of turn, and dispatch
beside rounds.
"""

import pickle
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AutoresetMode
from hypothesis import given, settings, strategies as st

from ata_gym import Scenario
from ata_gym.changes import Jump, Redraw, Switch, Walk
from ata_gym.pools import PoolDistribution, exponential, gamma, log_normal, pareto, trace
from ata_gym.scenarios import AtaConstants, Published, scenario
from tests.envs.playing import ALLOCATION, CHANGES, DISPATCH, IDS, RACE, SCENARIOS, same
from tests.simulation.test_rounds import POOL as MIXED

LATENCY = exponential(np.arange(1, MIXED.n + 1) / MIXED.n)
POOL = {
    "family": ["exponential", "gamma", "log-normal"],
    "shift": [1.0, 0.0, 0.5],
    "shape": [1.0, 3.0, 0.7],
}
RECURSIVE: list[Any] = []
RECURSIVE.append(RECURSIVE)


def test_a_trace_by_round_ends_after_its_last_round() -> None:
    env = gym.make(
        ALLOCATION,
        pool=trace([[1.0, 2.0], [3.0, 4.0]], replay="round", end="truncate"),
        budget=3,
    )
    env.reset(seed=0)
    for action, times, over in (([2, 1], [1.0, 1.0, 3.0], False), ([0, 3], [4.0] * 3, True)):
        observation, *_, truncated, _ = env.step(np.array(action))
        assert (observation["duration"].tolist(), truncated) == (times, over)
    assert env.reset()[0]["worker"].tolist() == [-1, -1, -1]
    assert env.step(np.array([3, 0]))[0]["duration"].tolist() == [1.0] * 3


@pytest.mark.parametrize("env_id", IDS)
def test_observations_are_the_users_own_and_inside_their_space(env_id: str) -> None:
    options: dict[str, Any] = {
        "pool": POOL,
        "budget": 3,
        "changes": CHANGES[-2:-1],
        "signals": True,
    }

    def make_env() -> tuple[Any, Any]:
        return gym.make(env_id, **options), gym.make_vec(env_id, num_envs=2, **options)

    for env, twin in zip(make_env(), make_env(), strict=True):
        observation = env.reset(seed=0)[0]
        expected = twin.reset(seed=0)[0]
        env.action_space.seed(0)
        for _ in range(9):
            assert observation in env.observation_space
            assert same(observation, expected)
            assert same(observation["signal"], env.unwrapped.conditions().signal)
            for field in observation.values():
                field[...] = 7
            action = env.action_space.sample()
            observation, *_, info = env.step(action)
            expected = twin.step(action)[0]
            for value in info.values():
                if isinstance(value, np.ndarray):
                    value[...] = 1
        assert all(
            np.isfinite(box.low).all() and np.isfinite(box.high).all()
            for box in env.observation_space.values()
        )


def test_seeds() -> None:
    env = gym.make(ALLOCATION, pool=POOL, budget=3)
    action = np.array([1, 1, 1])

    def episode(seed: int | None) -> list[float]:
        env.reset(seed=seed)
        return env.step(action)[0]["duration"].tolist()

    first = episode(5)
    second = episode(None)
    assert (episode(5), episode(None)) == (first, second)
    assert second != first != episode(6)
    fresh = [gym.make(ALLOCATION, pool=POOL, budget=3) for _ in range(2)]
    drawn = [(env.reset(), env.step(action))[1][0]["duration"].tolist() for env in fresh]
    assert drawn[0] != drawn[1]
    assert episode(2**100) == episode(2**100)


DRAWN = PoolDistribution(6, fewest=3)
AGAIN = Redraw(
    DRAWN,
    price=(0.01, 1.0),
    among=((), (Switch(every=20), Jump(at=2, workers=(0, 3), factor=0.1))),
)
MADE_WITH: list[dict[str, Any]] = [
    {"pool": POOL, "budget": 4, "price": 0.1},
    {"pool": SCENARIOS["changing"].pool.to_data(), "budget": 4},
    {
        "pool": MIXED,
        "budget": np.int64(4),
        "price": np.float32(0.5),
        "horizon": np.int32(7),
        "signals": np.True_,
    },
    {
        "pool": {"family": "exponential", "scale": np.array([1.0, 2.0])},
        "budget": 2,
        "changes": (Switch(every=2),),
    },
    {"pool": DRAWN, "budget": 4, "horizon": 3},
    {"pool": DRAWN.to_data(), "budget": 4, "horizon": 3, "changes": [AGAIN, Walk(0.2, 1.0)]},
    *({"scenario": scenario} for scenario in SCENARIOS.values()),
    {
        "scenario": scenario("drawn-changing-12-v2"),
        "budget": 7,
        "changes": [scenario("drawn-changing-12-v2").changes[0]],
    },
    {
        "scenario": "icml2025-regret",
        "changes": [{"change": "walk", "step": 0.2, "bound": 1.0}],
        "render_mode": "ansi",
    },
    {"pool": trace([[1.0, 2.0, 3.0]] * 2), "budget": 2, "unit_costs": np.array([1.0, 2.0])},
]
"""Every object that an argument may be; JSON holds none of them."""


@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("options", MADE_WITH)
def test_a_spec_survives_json_and_pickle_whatever_the_env_was_made_with(
    env_id: str,
    options: dict[str, Any],
) -> None:
    options = {
        name: value for name, value in options.items() if (env_id, name) != (DISPATCH, "unit_costs")
    }
    of_rows = {"num_envs": 2, "autoreset_mode": AutoresetMode.SAME_STEP}
    for make, more in ((gym.make, {}), (gym.make_vec, of_rows)):
        env: Any = make(env_id, **options, **more)
        for spec in (EnvSpec.from_json(env.spec.to_json()), pickle.loads(pickle.dumps(env.spec))):
            twin: Any = make(spec)
            assert twin.spec == spec == env.spec
            assert twin.unwrapped.scenario == env.unwrapped.scenario
            assert twin.metadata == env.metadata
            env.action_space.seed(0)
            assert same(twin.reset(seed=1)[0], env.reset(seed=1)[0])
            action = env.action_space.sample()
            result = env.step(action)
            expected = twin.step(action)
            assert same(result[0], expected[0])
            assert same(result[4], expected[4])


def test_an_iterator_of_changes_is_refused_as_the_next_row_would_get_none() -> None:
    for make in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match="changes must be a list of changes"):
            make(ALLOCATION, changes=iter([Switch(every=2)]))


@pytest.mark.parametrize("env_id", IDS)
def test_a_step_needs_a_reset(env_id: str) -> None:
    for env in (gym.make(env_id).unwrapped, gym.make_vec(env_id, num_envs=2)):
        with pytest.raises(ValueError, match="call reset"):
            env.step(env.action_space.sample())
        with pytest.raises(gym.error.Error, match="Seed"):
            env.reset(seed=-1)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"observation": "worker"}, "no observation .* did you mean workers"),
        ({"action": "start"}, "no action of this env 'start'"),
        ({"id": RACE, "action": "assign"}, "no action of this env 'assign'"),
        ({"id": DISPATCH, "action": "shares"}, "no action of this env 'shares'"),
        ({"id": DISPATCH, "action": "allocation"}, "no action of this env 'allocation'"),
        ({"reward_unit": "rounds"}, "did you mean even round"),
        (
            {"signals": True, "observation": "workers"},
            "signals=True shows the loads in observation=.feedback",
        ),
        ({"scenario": "icml2025-regret", "pool": POOL}, "not both"),
        ({"scenario": "icml2025-cifar10"}, "did you mean icml2025-cifar100"),
        ({"scenario": 3}, "scenario must be a name or a Scenario, not 3"),
        ({"pool": POOL}, "needs budget"),
        ({"pool": POOL, "budget": 0}, "budget must be a whole number"),
        ({"pool": POOL, "budget": 10**9_999}, r"budget must .* not a whole number of 33216 bits"),
        ({"pool": POOL, "budget": 10**12}, "1000000000000 results each needs about 64,000 GB"),
        ({"pool": POOL, "budget": 3, "horizon": 0}, "horizon must be a whole number"),
        ({"pool": POOL, "budget": 3, "price": -0.1}, "price must be a finite number"),
        ({"pool": POOL, "budget": 3, "signals": 1}, "signals must be True or False"),
        ({"pool": POOL, "budget": 3, "changes": 3}, "changes must be a list"),
        ({"pool": POOL, "budget": 3, "changes": {"change": "walk"}}, "changes must be a list"),
        ({"pool": POOL, "budget": 3, "changes": ["walk"]}, "a change is a mapping"),
        ({"pool": 3, "budget": 3}, "a pool is made from"),
        ({"pool": RECURSIVE, "budget": 3}, "a pool's data cannot hold itself"),
        ({"pool": [], "budget": 3}, "at least one"),
        ({"pool": trace([[1.0, 2.0]], end="truncate"), "budget": 3}, "cannot fill one round"),
    ],
)
def test_an_argument_that_is_wrong_is_named(arguments: dict[str, Any], message: str) -> None:
    for make in (gym.make, gym.make_vec):
        with pytest.raises(ValueError, match=message):
            make(**{"id": ALLOCATION, **arguments})


def test_bad_vector_arguments() -> None:
    arguments: dict[str, Any] = {"id": ALLOCATION, "pool": POOL, "budget": 3}
    with pytest.raises(ValueError, match="num_envs must be"):
        gym.make_vec(**arguments, num_envs=0)
    for mode in ("x", 3, np.array([1, 2])):
        with pytest.raises(ValueError, match="NEXT_STEP, SAME_STEP or DISABLED"):
            gym.make_vec(**arguments, num_envs=2, autoreset_mode=mode)
    named = gym.make_vec(**arguments, num_envs=2, autoreset_mode="SameStep")
    assert named.metadata["autoreset_mode"] is AutoresetMode.SAME_STEP
    with pytest.raises(ValueError, match=r"3 results each needs about .* fewer rows"):
        gym.make_vec(**arguments, num_envs=10**12)


def test_a_large_budget_needs_no_memory_in_dispatch() -> None:
    env: Any = gym.make(DISPATCH, pool=POOL, budget=10**12)
    env.reset(seed=0)
    assert env.step(np.ones(3, np.int8))[0]["missing"].tolist() == [10**12 - 1]


@pytest.mark.parametrize(
    ("name", "value"),
    [("alpha", "x"), ("alpha", float("nan")), ("eta", 0.0), ("eta", 10**400)],
)
def test_hyperparameters_of_a_scenario_are_checked(name: str, value: Any) -> None:
    with pytest.raises(ValueError, match=f"{name} must be a finite number above 0"):
        Scenario(POOL, 3, published=Published(icml=AtaConstants(**{name: value})))
    with pytest.raises(
        ValueError,
        match="published holds alpha and eta by version, which is preprint or icml",
    ):
        Scenario(POOL, 3, published={name: value})  # type: ignore[arg-type]


def check_the_steps_of(spec: EnvSpec, plain: gym.Env[Any, Any], short: gym.Env[Any, Any]) -> None:
    """An id without arguments tells how many steps its episodes have, and is not made with longer
    ones.
    """
    longer: list[dict[str, Any]] = [
        {"horizon": plain.unwrapped.horizon + 1},
        {"pool": POOL, "budget": 3},
    ]  # type: ignore[attr-defined]
    assert short.spec is not None
    assert short.spec.max_episode_steps == spec.max_episode_steps
    if spec.kwargs["action"] == "start":  # episodes differ
        assert spec.max_episode_steps is None
        assert gym.make(spec.id, **longer[0]).unwrapped.horizon == 101  # type: ignore[attr-defined]
        return
    plain.reset(seed=3)
    steps = 0
    over = False
    while not over:
        over = bool(plain.step(plain.action_space.sample())[3])
        steps += 1
    assert steps == spec.max_episode_steps
    for make in (gym.make, gym.make_vec):
        for options in longer:
            with pytest.raises(
                ValueError,
                match=f"{spec.id} truncates its episodes after {steps} steps, and these have",
            ):
                make(spec.id, **options)
        env = make(spec.id)
        env.reset(seed=0)
        kept = env.unwrapped.checkpoint()  # type: ignore[union-attr]
        with pytest.raises(
            ValueError,
            match=f"make ata_gym/{spec.name.partition('-')[0]}-v0 with observation='flat'",
        ):
            env.reset(options={"horizon": 500})
        assert same(env.unwrapped.checkpoint(), kept)  # type: ignore[union-attr]
        assert make(spec.id, horizon=7).unwrapped.horizon == 7  # type: ignore[union-attr]


FORMS = [spec for spec in gym.registry.values() if spec.namespace == "ata_gym" and spec.kwargs]


def test_there_is_one_id_for_each_env_and_form() -> None:
    forms = [spec.name.split("-") for spec in FORMS]
    assert sorted((env, action) for env, _, action in forms) == [
        *(("TaskAllocation", action) for action in ("assign", "shares")),
        *(("TaskDispatch", action) for action in ("dispatch", "start")),
        ("TaskRace", "shares"),
    ]
    for spec, (env, observation, action) in zip(FORMS, forms, strict=True):
        assert spec.kwargs == {
            "observation": observation,
            "action": action,
            "reward_unit": "even round",
        }
        assert observation == "flat"
        plain = gym.make(f"ata_gym/{env}-v0", **spec.kwargs)
        short = gym.make(spec.id)
        check_the_steps_of(spec, plain, short)
        assert type(short.unwrapped) is type(plain.unwrapped)
        assert isinstance(short.action_space, (spaces.Box, spaces.Discrete, spaces.MultiDiscrete))
        rows = gym.make_vec(spec.id, num_envs=2, horizon=7).unwrapped
        assert rows.single_action_space == short.action_space == plain.action_space
        assert rows.single_observation_space == short.observation_space == plain.observation_space


@pytest.mark.parametrize(
    ("env_id", "total"),
    [
        (ALLOCATION, [72.96623691581696, 68.99120995980743, 88.11015124329087]),
        (RACE, [79.88270672244377, 73.86677965904899, 102.74632140854865]),
        (DISPATCH, [23.681397139179964, 18.11020919778974, 24.99647088655656]),
    ],
)
def test_a_pool_without_changes_gives_what_it_always_has(env_id: str, total: list[float]) -> None:
    pool = exponential([1.0, 2.0]) + gamma(2.5, 0.7) + log_normal(0.1, 0.8) + pareto(3.0, 1.0)
    pool += trace([[1.0, 5.0, 2.0]])
    env = gym.make_vec(env_id, num_envs=3, pool=pool, budget=4, price=0.25)
    if env_id == DISPATCH:
        actions = spaces.MultiBinary((3, 6), seed=3)
    else:
        actions = env.action_space
    actions.seed(3)
    env.reset(seed=5)
    for _ in range(12):
        *_, info = env.step(actions.sample())
    np.testing.assert_allclose(info["total_worker_time"], total, rtol=1e-14)
    assert not any(name.startswith("change") for name in env.unwrapped.checkpoint())  # type: ignore[attr-defined]


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE])
@settings(max_examples=20)
@given(
    changes=st.sampled_from([[], [change for change in CHANGES if not change.faulty]]),
    rows=st.integers(1, 3),
    budget=st.integers(1, 6),
    seed=st.integers(0, 2**40),
    price=st.sampled_from([0.0, 0.3]),
)
def test_an_allocation_is_a_rule_of_dispatch(env_id, changes, rows, budget, seed, price) -> None:
    options = {
        "num_envs": rows,
        "pool": {**MIXED.to_data(), "latency": LATENCY},
        "changes": changes,
        "budget": budget,
        "price": price,
        "horizon": 3,
    }
    rounds = gym.make_vec(env_id, **options)
    results = gym.make_vec(DISPATCH, **options)
    rounds.action_space.seed(seed)
    rounds.reset(seed=seed)
    (observation, _), totals = results.reset(seed=seed), np.zeros((2, rows))
    for _ in range(3):
        allocation = rounds.action_space.sample()
        expected, reward, _, truncated, whole = rounds.step(allocation)
        rewards = np.zeros(rows)
        previous_times = np.zeros((2, rows))
        done = np.zeros_like(allocation)
        worker = np.empty((rows, budget), np.int64)
        time = np.empty((rows, budget))
        for b in range(budget):
            assert (observation["missing"] == budget - b).all()
            observation, gained, _, ended, info = results.step(
                (observation["started"] < allocation).astype(np.int8),
            )
            worker[:, b] = observation["worker"][:, 0]
            time[:, b] = observation["duration"][:, 0]
            rewards += gained
            times = np.array([info["round_time"], info["worker_time"]])
            np.testing.assert_allclose(
                -gained,
                (times - previous_times)[0] + price * (times - previous_times)[1],
                atol=1e-12,
            )
            previous_times = times
            np.add.at(done, (np.arange(rows), worker[:, b]), 1)
            over = b == budget - 1
            assert (info["round_over"] == over).all()
            assert (ended == (truncated & info["round_over"])).all()
            running = (observation["started"] > done) & (not over)
            assert (observation["running"] == running).all()
            assert (observation["age"][~running] == 0).all()
            assert (observation["age"] <= info["round_time"][:, None]).all()
        # the order of a round: by worker, then by start
        order = np.argsort(
            worker,
            axis=1,
            kind="stable",
        )
        assert np.take_along_axis(worker, order, 1).tolist() == expected["worker"].tolist()
        assert np.take_along_axis(time, order, 1).tobytes() == expected["duration"].tobytes()
        assert observation["elapsed"].tobytes() == expected["elapsed"].tobytes()
        for name in ("round_time", "worker_time", "runtime", "total_worker_time"):
            assert info[name].tobytes() == whole[name].tobytes(), name
        totals += whole["round_time"], whole["worker_time"]
        assert np.array_equal([whole["runtime"], whole["total_worker_time"]], totals)
        assert "lost" not in whole
        np.testing.assert_allclose(rewards, reward)
        results_memory = results.unwrapped.checkpoint()
        rounds_memory = rounds.unwrapped.checkpoint()
        for name, field in rounds_memory.items():
            assert results_memory[name].tobytes() == field.tobytes(), name


@pytest.mark.parametrize("mode", [AutoresetMode.NEXT_STEP, AutoresetMode.SAME_STEP])
def test_a_trace_that_ends_ends_the_episode_at_a_rounds_end(mode: AutoresetMode) -> None:
    """By task, a row ends when a worker might run out in the next round: rows that use the trace
    unevenly end apart.
    """
    pool = trace([[1.0] * 9, [2.0] * 9], end="truncate")
    envs = gym.make_vec(DISPATCH, num_envs=2, pool=pool, budget=3, autoreset_mode=mode)
    envs.reset(seed=0)
    by_turns = [[1, 0], [0, 1]]  # of row 1: a round each
    ended = np.array([envs.step(np.array([[1, 0], by_turns[k // 3 % 2]]))[3] for k in range(15)])
    assert np.argmax(ended[:, 0]) == 8  # after 3 rounds of 3 tasks
    assert np.flatnonzero(ended[:, 1]).tolist() == [14]
