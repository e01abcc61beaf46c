"""Checkpoints from outside: whatever numbers they hold, an env refuses them by name or goes on with finite rewards."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from ata_gym.changes import Crash, Load, OnOff, Redraw, Spot, Switch, Walk
from ata_gym.pools import shifted_exponential
from ata_gym.pools.pool_distribution import PoolDistribution
from ata_gym.utils.trees import difference

ALLOCATION, RACE, DISPATCH = (f"ata_gym/Task{name}-v0" for name in ("Allocation", "Race", "Dispatch"))
DRAWN = PoolDistribution(4, fewest=2)
FAULTS = [Walk(0.1, 1.0), Spot(0.2, 0.5, 3.0), Crash(0.2, 2.0, 2, 4.0), Load(0.3, 0.3, 0.1, 0.9), OnOff(4.0, 0.2, 0.3)]
AGAIN = Redraw(DRAWN, price=(0.01, 1.0), among=((), (Switch(every=2), Walk(0.2, 1.0))), every=3)
OPTIONS: list[tuple[str, dict[str, Any]]] = [
    (ALLOCATION, {"changes": FAULTS, "signals": True}),
    (ALLOCATION, {"pool": DRAWN, "changes": [AGAIN], "observation": "workers", "action": "assign"}),
    (RACE, {"changes": [Switch(every=2)], "reward_unit": "first round"}),
    (DISPATCH, {"changes": FAULTS}),
    (DISPATCH, {"pool": DRAWN, "changes": [AGAIN], "action": "start", "observation": "flat"}),
]
WRONG = {
    "i": (-2, 10**6, -(10**6), 2**62, -(2**62)),
    "f": (np.nan, np.inf, -np.inf, -1.0, 0.5, 1e6, 1e300, -1e300),
}


def made(env_id: str, options: dict[str, Any]) -> Any:
    pool = shifted_exponential(np.arange(1.0, 5.0), np.arange(1.0, 5.0))
    env: Any = gym.make_vec(env_id, num_envs=2, **({"pool": pool} | options), budget=5, horizon=50)
    env.action_space.seed(0)
    env.reset(seed=1)
    return env


def with_last(field: Any, value: float) -> Any:
    """The array with another last number; one that an integer type does not hold is cut to what it does."""
    broken, limits = field.copy(), np.iinfo(field.dtype) if field.dtype.kind == "i" else None
    broken[(-1,) * field.ndim] = value if limits is None else min(max(value, limits.min), limits.max)
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
def test_wrong_numbers_are_refused_by_name_or_played_on(env_id: str, options: dict[str, Any]) -> None:
    env, refused = made(env_id, options), set()
    bare = env.unwrapped
    for _ in range(23):
        env.step(env.action_space.sample())
        kept = bare.checkpoint()
        bare.restore(kept)  # what an env has, it can have
    for name, field in kept.items():
        for value in WRONG.get(field.dtype.kind, ()):
            said = refusal(bare, {**kept, name: with_last(field, value)})
            if said is not None:
                refused.add(name)
                assert f"this checkpoint does not fit the env: '{name}' " in said
                assert difference(bare.checkpoint(), kept) is None
                continue
            for _ in range(7):
                _, reward, _, _, info = env.step(env.action_space.sample())
                assert np.isfinite(reward).all(), (name, value)
                assert all(np.isfinite(info[key]).all() for key in ("runtime", "total_worker_time") if key in info)
            bare.restore(kept)
    assert refused == {name for name, field in kept.items() if field.dtype.kind in "if"}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"finish": np.nan}, "'finish' must be from 0 to .*, and holds nan"),
        ({"runtime": np.inf}, "'runtime' must be from 0 to .*, and holds inf"),
        ({"missing": 0}, "'missing' must be from 1 to 5, and holds 0"),
        (
            {"running": 1, "begun": 9.0, "now": 3.0, "finish": 10.0},
            "'begun' and 'finish' must be before and after 'now'",
        ),
        ({"started": 0.5}, "'started' must hold int64"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, float], said: str) -> None:
    bare = made(DISPATCH, {}).unwrapped
    kept = bare.checkpoint()
    broken = {name: np.full(kept[name].shape, value) for name, value in changes.items()}
    with pytest.raises(ValueError, match=said):
        bare.restore({**kept, **broken})
    assert difference(bare.checkpoint(), kept) is None
