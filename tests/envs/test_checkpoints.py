"""Checkpoints: an env goes on from its own bit for bit, and refuses wrong numbers by name or plays
on.
"""

import pickle
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from ata_gym.changes import (
    ColdAfterIdle,
    Crash,
    Leak,
    Load,
    OnOff,
    Redraw,
    Spot,
    Switch,
    Throttling,
    Walk,
    Warming,
)
from ata_gym.pools import shifted_exponential
from ata_gym.pools.pool_distribution import PoolDistribution
from ata_gym.utils.trees import difference
from tests.envs.playing import (
    ALLOCATION,
    DISPATCH,
    EVERY_FORM,
    RACE,
    SCENARIOS,
    ActionSampler,
    arguments,
    same,
)

DRAWN = PoolDistribution(4, fewest=2)
FAULTS = [
    Walk(0.1, 1.0),
    Spot(0.2, 0.5, 3.0),
    Crash(0.2, 2.0, 2, 4.0),
    Load(0.3, 0.3, 0.1, 0.9),
    OnOff(4.0, 0.2, 0.3),
]
LOADED = [
    Throttling(9.0, 0.5, 0.3, 2.0),
    Leak(0.2, 6, away=1),
    ColdAfterIdle(2, 2.0),
    Warming(5, 3.0, smooth=True),
]
AGAIN = Redraw(DRAWN, price=(0.01, 1.0), among=((), (Switch(every=2), Walk(0.2, 1.0))), every=3)
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    (ALLOCATION, {"changes": FAULTS, "signals": True}),
    (ALLOCATION, {"pool": DRAWN, "changes": [AGAIN], "observation": "workers", "action": "assign"}),
    (RACE, {"changes": [Switch(every=2)], "reward_unit": "even round"}),
    (RACE, {"changes": FAULTS, "signals": True, "latency": 0.5, "delay": 2}),
    (DISPATCH, {"changes": FAULTS}),
    (RACE, {"changes": LOADED}),
    (DISPATCH, {"changes": LOADED}),
    (DISPATCH, {"pool": DRAWN, "changes": [AGAIN], "action": "start", "observation": "flat"}),
]
WRONG = {
    "i": (-2, 10**6, -(10**6), 2**62, -(2**62)),
    "f": (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e6, 1e300, -1e300),
}


def make_env(env_id: str, options: dict[str, Any]) -> Any:
    pool = shifted_exponential(np.arange(1.0, 5.0), np.arange(1.0, 5.0))
    env: Any = gym.make_vec(env_id, num_envs=2, **({"pool": pool} | options), budget=5, horizon=50)
    env.action_space.seed(0)
    env.reset(seed=1)
    return env


def with_last(field: Any, value: float) -> Any:
    """The array with another last number; one that an integer type does not hold is cut to what it
    does.
    """
    broken = field.copy()
    if field.dtype.kind == "i":
        limits = np.iinfo(field.dtype)
    else:
        limits = None
    if limits is None:
        broken[(-1,) * field.ndim] = value
    else:
        broken[(-1,) * field.ndim] = min(max(value, limits.min), limits.max)
    return broken


def refusal(bare: Any, checkpoint: dict[str, Any]) -> str | None:
    """What is said; None where it is taken."""
    try:
        bare.restore(checkpoint)
    except ValueError as error:
        return str(error)
    return None


@pytest.mark.parametrize(("env_id", "options"), OPTIONS)
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_wrong_numbers_are_refused_by_name_or_played_on(
    env_id: str,
    options: dict[str, Any],
) -> None:
    env = make_env(env_id, options)
    refused = set()
    bare = env.unwrapped
    for _ in range(11):
        env.step(env.action_space.sample())
        kept = bare.checkpoint()
        bare.restore(kept)  # what an env has, it can have
    for name, field in kept.items():
        for value in WRONG.get(field.dtype.kind, ()):
            sentence = refusal(bare, {**kept, name: with_last(field, value)})
            if sentence is not None:
                refused.add(name)
                assert sentence.startswith("this checkpoint does not fit the env: '")
                # two fields that contradict each other are both named
                assert f"'{name}' " in sentence
                assert difference(bare.checkpoint(), kept) is None
                continue
            for _ in range(4):
                _, reward, _, _, info = env.step(env.action_space.sample())
                assert np.isfinite(reward).all(), (name, value)
                assert all(
                    np.isfinite(info[key]).all()
                    for key in ("runtime", "total_worker_time")
                    if key in info
                )
            bare.restore(kept)
    assert refused == {name for name, field in kept.items() if field.dtype.kind in "if"}


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"missing": 0}, "'missing' must be from 1 to 5, and holds 0"),
        (
            {"running": 1, "task_start": 9.0, "time": 3.0, "finish": 10.0},
            "'finish' must be before and after 'time'",
        ),
        (
            {"running": 1, "task_start": 1.0, "time": 3.0, "finish": 2.0},
            "'finish' must be before and after 'time'",
        ),
        ({"started": 0.5}, "'started' must hold int64"),
    ],
)
def test_wrong_numbers_are_named(changes: dict[str, float], sentence: str) -> None:
    bare = make_env(DISPATCH, {}).unwrapped
    kept = bare.checkpoint()
    broken = {
        name: np.full(kept[name].shape, value, type(value)) for name, value in changes.items()
    }
    assert sentence in str(refusal(bare, kept | broken))
    assert difference(bare.checkpoint(), kept) is None


@pytest.mark.parametrize(
    ("form", "scenario_name", "mode", "steps", "delay"),
    [
        (
            form,
            list(SCENARIOS)[(i + i // 7) % 3],
            list(AutoresetMode)[i % 3],
            (0, 2, 5, 11)[i % 4],
            i % 2 * (form["id"] != DISPATCH),
        )
        for i, form in enumerate(EVERY_FORM)
        if form["observation"] != "flat"
    ],
)
def test_envs_go_on_from_a_checkpoint_bit_for_bit(form, scenario_name, mode, steps, delay) -> None:
    """Some in the midst of a round or of a choice; and one that does not fit changes nothing."""
    env_id, options = arguments(form)
    options |= {"reward_unit": "even round", "scenario": SCENARIOS[scenario_name]}
    if delay:
        options["delay"] = delay
    kinds: list[tuple[Any, dict[str, Any]]] = [
        (gym.make, {}),
        (gym.make_vec, {"num_envs": 3, "autoreset_mode": mode, "max_episode_steps": 30}),
    ]
    for make, more in kinds:
        env, later = (make(env_id, **options, **more).unwrapped for _ in range(2))
        sampler = ActionSampler(env.action_space, 1)
        env.reset(seed=4)
        later.reset(seed=9)
        later.step(later.action_space.sample())
        for step in range(steps + 15):
            if step >= steps and step % 3 == 0:
                later.restore(pickle.loads(pickle.dumps(env.checkpoint())))
            action = sampler()
            result = env.step(action)
            if step >= steps - steps % 3 + 3:
                other = later.step(action)
                assert same(result[0], other[0])
                assert all(
                    np.array_equal(a, b) for a, b in zip(result[1:4], other[1:4], strict=True)
                )
                assert same(result[4], other[4])
            if np.any(result[3]) and (make is gym.make or mode is AutoresetMode.DISABLED):
                later.restore(env.checkpoint())
                ended_rows = np.flatnonzero(result[3]).tolist()
                ended = f"the episodes of rows {ended_rows} have ended: reset"
                for one in (env, later):
                    with pytest.raises(
                        ValueError,
                        match="call reset" if make is gym.make else re.escape(ended),
                    ):
                        one.step(action)
                if make is gym.make:
                    reset = {}
                else:
                    reset = {"options": {"reset_mask": result[3].copy()}}
                assert same(env.reset(**reset)[0], later.reset(**reset)[0])
        before = env.checkpoint()
        for name in ("round", "ended", *["finish"] * (env_id == DISPATCH)):
            fewer = {key: field for key, field in before.items() if key != name}
            for broken in ({**before, "runtime": 7 + before["runtime"], name: np.zeros(5)}, fewer):
                with pytest.raises(ValueError, match=f"does not fit the env: '{name}' must hold"):
                    env.restore(broken)
        assert same(env.checkpoint(), before)
