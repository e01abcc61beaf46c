"""Every policy plays legally after whatever its observation space allows, and a row is what it is
alone.
"""

from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.pools import exponential
from ata_gym.scenarios import AtaConstants, Published, Scenario
from ata_gym.utils.trees import difference, map_leaves

_TIMES = (0.0, 5e-324, 1e-300, 1e-3, 1.0, 1e3, 1e150, 1e300)
_STEPS = 8
_NARROW = Published(*[AtaConstants(alpha=0.1, eta=0.1)] * 2)
"""Bounds so narrow that scores are above 0 after few rounds."""


def attempt(rng: np.random.Generator, folder: Path) -> None:
    """One policy, in a random scenario and batch, sees what an env sends and what none ever
    would.
    """
    del folder
    name = str(rng.choice(ata_policies.names()))
    preset = ata_policies.load(name)
    n, budget, rows, seed = (
        int(rng.integers(low, high)) for low, high in ((1, 7), (1, 13), (1, 4), (0, 99))
    )
    price = float(rng.choice([0.0, 0.1, 3.0]))
    pool = exponential(10.0 ** rng.uniform(-3, 3, n))
    scenario = Scenario(
        pool,
        budget,
        horizon=int(rng.integers(2, 20)),
        price=price,
        published=_NARROW,
    )
    envs = gym.make_vec(preset.env_id, num_envs=rows, scenario=scenario)
    about = f"{name}, n = {n}, B = {budget}, {rows} rows, price {price}, seed {seed}"
    bare = envs.unwrapped
    policy = ata_policies.make(name, envs, seed)
    alone = [ata_policies.make(name, envs, seed + e) for e in range(rows)]
    sent, _ = envs.reset(seed=seed)
    state: Any = None
    states: list[Any] = [None] * rows
    envs.observation_space.seed(seed)
    for k in range(_STEPS):
        if k == 0 or rng.random() < 0.4:
            observation = sent
        else:
            observation = _any_legal(rng, envs, sent)
        if preset.privileged:
            now = {"privileged": bare.conditions()}
        else:
            now = {}
        action, state = policy.predict(observation, state, **now)
        bare.check_actions(action)
        policy.check_state(state, rows)
        for e in range(rows):
            own = {key: np.asarray(field)[e : e + 1] for key, field in observation.items()}
            if now:
                mine = {"privileged": _rows_of(now["privileged"], e)}
            else:
                mine = {}
            single, states[e] = alone[e].predict(own, states[e], **mine)
            assert np.array_equal(single[0], action[e]), (
                f"{about}: row {e} differs alone in step {k}"
            )
            rest = map_leaves(lambda leaf, e=e: leaf[e : e + 1], state)
            assert difference(states[e], rest) is None, (
                f"{about}: the state of row {e} differs alone in step {k}"
            )
        sent = envs.step(action)[0]
    envs.close()


def _any_legal(rng: np.random.Generator, envs: Any, sent: dict[str, Any]) -> dict[str, Any]:
    """A sample of the observation space, with times of every magnitude; some rows begin an
    episode.
    """
    sample = dict(envs.observation_space.sample())
    for key, field in sample.items():
        if field.dtype.kind == "f" and key != "signal":
            times = np.where(
                rng.random(field.shape) < 0.5,
                rng.choice(_TIMES, field.shape),
                rng.exponential(1.0, field.shape),
            )
            sample[key] = np.where(rng.random(field.shape) < 0.1, field, times)
    if "missing" in sample:
        # a round over is followed by a new one at once
        sample["missing"] = np.maximum(
            sample["missing"],
            1,
        )
    begin = rng.random(len(sample["worker"])) < 0.1
    for key, value in (("worker", -1), ("duration", 0.0), ("elapsed", 0.0)):
        sample[key][begin] = value
    return {key: sample[key].astype(np.asarray(field).dtype) for key, field in sent.items()}


def _rows_of(conditions: Any, e: int) -> Any:
    return type(conditions)._make(
        part[e : e + 1] if isinstance(part, np.ndarray) else part for part in conditions
    )
