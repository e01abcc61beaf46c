"""Rows of the native vector envs: the rows of Gymnasium's own vector envs of single envs, in every
form and mode.
"""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from ata_gym.envs.interface.interface import REWARD_UNITS
from ata_gym.pools import exponential
from tests.envs.playing import (
    ALLOCATION,
    DISPATCH,
    EVERY_FORM,
    IDS,
    RACE,
    SCENARIOS,
    ActionSampler,
    arguments,
    name,
    same,
    vector,
)

ROWS = 3
SEED = 5
MODES = list(AutoresetMode)
PAIRWISE = [
    (form, mode, list(SCENARIOS)[(i + k) % 3], REWARD_UNITS[(i + i // 7 + k) % 2])
    for i, form in enumerate(EVERY_FORM)
    for k, mode in enumerate(MODES)
    if form["observation"] == "feedback" or (i + i // 7) % 3 == k
]
"""Every form of actions in every mode, and of observations in one; scenarios and units of reward by
turns.
"""


def pair(env_id: str, mode: AutoresetMode, **options: Any) -> tuple[Any, Any]:
    native = gym.make_vec(env_id, num_envs=ROWS, autoreset_mode=mode, **options)
    kind = {"vectorization_mode": "sync", "vector_kwargs": {"autoreset_mode": mode}}
    sync = gym.make_vec(env_id, ROWS, **kind, **options)  # type: ignore[arg-type]
    assert isinstance(sync, gym.vector.SyncVectorEnv)
    assert native.single_observation_space == sync.single_observation_space
    assert native.single_action_space == sync.single_action_space
    return native, sync


def check_alike(native: tuple[Any, ...], sync: tuple[Any, ...]) -> None:
    """The whole of what a step gives, keys, dtypes and masks of the info too."""
    assert same(native[0], sync[0])
    assert all(
        ours.tolist() == other.tolist() for ours, other in zip(native[1:4], sync[1:4], strict=True)
    )
    assert same(native[4], sync[4])


@pytest.mark.parametrize(
    ("form", "mode", "scenario_name", "unit"),
    PAIRWISE,
    ids=lambda part: name(part) if isinstance(part, dict) else str(part),
)
def test_rows_are_as_in_gymnasiums_vector_env(form, mode, scenario_name, unit) -> None:
    (env_id, options), signals = (
        arguments(form),
        scenario_name == "changing" and form["observation"] == "feedback",
    )
    chance = np.random.default_rng(SEED)
    masked = form["action"] in ("assign", "start")
    options |= {
        "scenario": SCENARIOS[scenario_name],
        "reward_unit": unit,
        "signals": signals,
        "render_mode": "ansi",
    }
    if unit == "even round" and env_id != DISPATCH:
        options["delay"] = 2
    if (scenario_name, unit) == (
        "drawn",
        "time",
    ):  # with a time limit, for some in the midst of a round
        if masked or env_id == DISPATCH:
            options["max_episode_steps"] = 7
        else:
            options["max_episode_steps"] = 2
    native, sync = pair(env_id, mode, **options)
    (observation, info), (expected, other_info) = native.reset(seed=SEED), sync.reset(seed=SEED)
    assert same(observation, expected)
    assert same(info, other_info)
    told = {key for key in info if not key.startswith("_")}
    assert {"round_time", "worker_time", "runtime", "total_worker_time"} <= told
    samplers = [ActionSampler(native.single_action_space, e) for e in range(ROWS)]
    due = np.zeros(ROWS, np.bool_)
    ends = set()
    lost = 0
    by_mask = 0
    steps = 20
    if masked:
        steps = 90 if scenario_name == "ending" else 40
    for k in range(steps):
        assert native.observation_space.contains(observation)
        if masked:
            masks = native.call("action_masks")
        else:
            masks = None
        if k % 3 == 0:
            assert same(native.call("means"), sync.call("means"))
            conditions = native.unwrapped.conditions()
            for e, single_conditions in enumerate(sync.call("conditions")):
                parts = zip(single_conditions, conditions, strict=True)
                assert all(
                    np.array_equal(a, b[e] if isinstance(b, np.ndarray) else b) for a, b in parts
                )
        assert masks is None or same(masks, sync.call("action_masks"))
        acts = np.array(
            [
                play(None if masks is None else masks[e].astype(np.int8))
                for e, play in enumerate(samplers)
            ],
        )
        if mode is AutoresetMode.NEXT_STEP and due.any() and not masked:
            # the action of a reset row is ignored
            if acts.dtype.kind == "f":
                acts[due] = acts[due] * np.nan
            else:
                acts[due] = -1
        native_step = native.step(acts)
        expected_step = sync.step(acts)
        check_alike(native_step, expected_step)
        observation, _, _, due, info = native_step
        assert {key for key in info if not key.startswith(("_", "final_"))} == told
        ends.add(tuple(due.tolist()))
        lost += int(np.sum(info.get("lost", 0)))
        assert k % 6 or native.render() == sync.render()
        if mode is AutoresetMode.DISABLED and (due := due | (chance.random(ROWS) < 0.1)).any():
            (observation, info), (expected, other_info) = (
                env.reset(options={"reset_mask": due.copy()}) for env in (native, sync)
            )
            assert same(observation, expected)
            assert same(info, other_info)
            by_mask += 1
    assert len(ends) > 1 or by_mask
    assert (
        any(len(set(one)) == 2 for one in ends) or scenario_name != "ending"
    )  # rows were out of phase
    assert (by_mask > 0) == (mode is AutoresetMode.DISABLED)
    assert scenario_name != "changing" or form["action"] == "start" or lost > 0


@pytest.mark.parametrize(
    ("env_id", "action"),
    [(ALLOCATION, "shares"), (RACE, "allocation"), (DISPATCH, "start")],
)
def test_processes_give_the_same_as_the_native_rows(env_id: str, action: str) -> None:
    options: dict[str, Any] = {"scenario": SCENARIOS["changing"], "action": action, "signals": True}
    native = gym.make_vec(env_id, num_envs=2, **options)
    processes = gym.make_vec(env_id, 2, vectorization_mode="async", **options)
    native.action_space.seed(2)
    try:
        assert same(native.reset(seed=5)[0], processes.reset(seed=5)[0])
        for _ in range(9):
            actions = native.action_space.sample()
            check_alike(native.step(actions), processes.step(actions))
    finally:
        processes.close()


def test_seeds_of_rows() -> None:
    envs = gym.make_vec(ALLOCATION, num_envs=3, pool=exponential([1.0, 2.0, 3.0]), budget=3)
    actions = np.ones((3, 3), np.int64)

    def episode(seed: Any) -> list[Any]:
        envs.reset(seed=seed)
        durations: list[Any] = envs.step(actions)[0]["duration"].tolist()
        return durations

    rows = episode(5)
    assert (episode([5, 6, 7]), episode([5, 6, None])[:2]) == (rows, rows[:2])
    assert episode(None) != rows
    with pytest.raises(ValueError, match="one for each of 3 rows"):
        envs.reset(seed=[1, 2])


def test_picks_of_a_row_that_is_reset_are_forgotten() -> None:
    envs = vector(ALLOCATION, "ending", 2, action="assign", autoreset_mode="Disabled")
    envs.reset(seed=0)
    envs.step(np.array([1, 2]))
    observation, _ = envs.reset(options={"reset_mask": np.array([True, False])})
    assert (observation["missing"].tolist(), np.argwhere(observation["started"]).tolist()) == (
        [[4], [3]],
        [[1, 2]],
    )


ALL = np.ones(2, np.bool_)


@pytest.mark.parametrize(
    ("mode", "options", "error", "sentence"),
    [
        ("Disabled", {"reset_mask": [True, False]}, TypeError, "must be an array of booleans"),
        (
            "Disabled",
            {"reset_mask": np.ones(3, np.bool_)},
            ValueError,
            r"must have shape \(2,\) and mark a row",
        ),
        ("Disabled", {"reset_mask": ~ALL}, ValueError, "and mark a row"),
        ("Disabled", {"reset_mask": ALL, "price": 1.0}, ValueError, "comes alone"),
        ("NextStep", {"reset_mask": ALL}, ValueError, "is for autoreset_mode DISABLED"),
    ],
)
def test_a_mask_that_cannot_be_used_is_refused(
    mode: str,
    options: dict[str, Any],
    error: Any,
    sentence: str,
) -> None:
    with pytest.raises(error, match=sentence):
        vector(ALLOCATION, "ending", 2, autoreset_mode=mode).reset(options=options)


@pytest.mark.parametrize("env_id", IDS)
def test_a_native_vector_env_has_gymnasiums_class_as_a_direct_base(env_id: str) -> None:
    """Some libraries look no further."""
    assert gym.vector.VectorEnv in type(gym.make_vec(env_id, num_envs=2)).__bases__


@pytest.mark.parametrize("env_id", IDS)
def test_attributes_of_the_callers_own_are_kept_for_each_row(env_id: str) -> None:
    native, sync = pair(env_id, AutoresetMode.NEXT_STEP, scenario=SCENARIOS["changing"])
    for attribute, values in (
        ("level", [3, 1, 2]),
        ("level", (0, 0, 1)),
        ("tag", "one"),
        ("tag", np.arange(3)),
        ("n_of", len),
    ):
        for envs in (native, sync):
            envs.set_attr(attribute, values)
        if not callable(values):
            assert same(native.get_attr(attribute), sync.get_attr(attribute))
    assert native.call("n_of", [1, 2]) == sync.call("n_of", [1, 2]) == (2, 2, 2)
    for wrong in ([1, 2], (), [1, 2, 3, 4]):
        for envs in (native, sync):
            with pytest.raises(ValueError, match="values"):
                envs.set_attr("level", wrong)
    assert native.get_attr("level") == sync.get_attr("level") == (0, 0, 1)


@pytest.mark.parametrize("env_id", IDS)
def test_what_the_envs_have_themselves_cannot_be_set(env_id: str) -> None:
    """Neither in rows nor alone: the name is in the error, and nothing has changed."""
    native = gym.make_vec(env_id, num_envs=2)
    native.reset(seed=0)
    kept = native.unwrapped.checkpoint()  # type: ignore[attr-defined]
    for attribute in (
        "price",
        "scenario",
        "pool",
        "horizon",
        "n",
        "budget",
        "step",
        "single_action_space",
        "num_envs",
        "_state",
    ):
        with pytest.raises(
            AttributeError,
            match=f"^{attribute} belongs to the envs and cannot be set: make them with other",
        ):
            native.unwrapped.set_attr(attribute, 3)  # type: ignore[attr-defined]
    assert same(native.unwrapped.checkpoint(), kept)  # type: ignore[attr-defined]
    for attribute in ("price", "scenario", "pool", "horizon", "n", "budget"):
        with pytest.raises(AttributeError, match=attribute):
            setattr(gym.make(env_id).unwrapped, attribute, 3)
