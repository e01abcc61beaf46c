"""Delayed feedback: what an agent is shown of a round is what an env without a delay has shown."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode

from ata_gym.envs.interface.worker_features import FEATURE
from ata_gym.envs.states import batch_state
from ata_gym.pools import deterministic
from tests.envs.playing import (
    ALLOCATION,
    DISPATCH,
    RACE,
    SCENARIOS,
    ActionSampler,
    same,
    single,
    vector,
)

SEED = 3
KNOWN_AT_ONCE = {"present", "started", "missing"}
"""The keys that are no feedback of a round."""
ACTIONS = [
    (ALLOCATION, "allocation"),
    (ALLOCATION, "assign"),
    (RACE, "allocation"),
    (RACE, "shares"),
]


def record_allocations(env: Any) -> list[Any]:
    """A list to which the allocation of each round of the env is added when it is played."""
    allocations: list[Any] = []
    step = env._state.step

    def recorded(action: Any) -> Any:
        allocations.append(action[0].copy())
        return step(action)

    env._state.step = recorded
    return allocations


@pytest.mark.parametrize("delay", [1, 3])
@pytest.mark.parametrize(("env_id", "action"), ACTIONS)
@pytest.mark.parametrize("scenario_name", SCENARIOS)
def test_feedback_is_what_an_env_without_a_delay_has_shown(
    env_id: str, action: str, scenario_name: str, delay: int
) -> None:
    """Rewards, info and ends are of the round just played; what is late at the end is lost."""
    options = {"action": action, "signals": True}
    plain = single(env_id, scenario_name, **options)
    late = single(env_id, scenario_name, delay=delay, **options)
    assert (plain.delay, late.delay) == (0, delay)
    allocations = record_allocations(plain)
    sampler = ActionSampler(plain.action_space, SEED)
    for seed in (SEED, None, None):
        allocations.clear()
        observation, info = plain.reset(seed=seed)
        late_observation, late_info = late.reset(seed=seed)
        assert same(info, late_info)
        # what an env without a delay shows before its first round, and after each
        shown = [observation | {"allocation": np.zeros(plain.n, np.int64)}]
        ended = False
        while not ended:
            chosen = sampler()
            observation, *results, info = plain.step(chosen)
            late_observation, *late_results, late_info = late.step(chosen)
            assert results == late_results
            assert same(info, late_info)
            if len(allocations) == len(shown):
                shown.append(observation | {"allocation": allocations[-1]})
            expected = shown[max(len(shown) - 1 - delay, 0)]
            at_once = {key: observation[key] for key in KNOWN_AT_ONCE & observation.keys()}
            assert same(late_observation, expected | at_once)
            assert late.observation_space.contains(late_observation)
            ended = results[2]
        assert len(shown) > 1


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_reset_forgets_the_rounds_that_are_late(mode: AutoresetMode) -> None:
    """In the rows that are reset; the others go on."""
    envs = vector(ALLOCATION, "ending", 3, delay=2, autoreset_mode=mode)
    sampler = ActionSampler(envs.single_action_space, SEED)
    observation, _ = envs.reset(seed=SEED)
    rounds = np.zeros(3, int)
    resets = 0
    due = np.zeros(3, np.bool_)
    for _ in range(30):
        assert ((observation["worker"][:, 0] < 0) == (rounds <= 2)).all()
        assert ((observation["allocation"].sum(axis=1) == 0) == (rounds <= 2)).all()
        observation, _, _, ended, _ = envs.step(np.array([sampler() for _ in range(3)]))
        rounds += 1
        if mode is AutoresetMode.NEXT_STEP:
            rounds[due] = 0
            due = ended
        elif ended.any():
            if mode is AutoresetMode.DISABLED:
                observation, _ = envs.reset(options={"reset_mask": ended.copy()})
            rounds[ended] = 0
        resets += ended.sum()
    assert resets > 2


@pytest.mark.parametrize("observation", ["workers", "flat"])
def test_features_follow_from_the_delayed_feedback(observation: str) -> None:
    """Nobody seems to be away whose results are only late."""
    pool = deterministic([1.0, 2.0, 4.0])
    plain, late = (
        gym.make(ALLOCATION, pool=pool, budget=3, observation=observation, delay=delay).unwrapped
        for delay in (0, 2)
    )
    actions = np.array([[3, 0, 0], [0, 3, 0], [0, 0, 3], [1, 1, 1], [3, 0, 0]])
    shown = [env.reset(seed=0)[0] for env in (plain, late)]
    assert same(*shown)
    plain_steps = [plain.step(action)[0] for action in actions]  # type: ignore[attr-defined]
    silence = {FEATURE.silence, FEATURE.silence + 15, FEATURE.silence + 30}
    for k, action in enumerate(actions):
        features = late.step(action)[0]  # type: ignore[attr-defined]
        expected = plain_steps[k - 2] if k >= 2 else shown[0]
        if observation == "workers":
            assert (features[:, FEATURE.available] == 1.0).all()
            features = np.delete(features, FEATURE.silence, axis=1)
            expected = np.delete(expected, FEATURE.silence, axis=1)
        else:
            features, expected = (np.delete(x, list(silence)) for x in (features, expected))
        # two more rounds without a result of some worker are known to have passed
        assert same(features, expected)


def test_a_rendered_round_is_the_last_one() -> None:
    pool = deterministic([1.0, 2.0])
    env: Any = single(ALLOCATION, "ending", render_mode="ansi", delay=3)
    assert env.spec.kwargs["delay"] == 3
    env = gym.make(ALLOCATION, pool=pool, budget=2, render_mode="ansi", delay=3).unwrapped
    env.reset(seed=0)
    observation, *_ = env.step(np.array([0, 2]))
    assert observation["worker"].tolist() == [-1, -1]
    assert env.timeline().worker.tolist() == [1, 1]
    assert "4" in env.render()


@pytest.mark.parametrize("vectorised", [False, True])
def test_what_cannot_be_late_is_refused(vectorised: bool, monkeypatch: Any) -> None:
    def make(env_id: str, delay: Any) -> Any:
        if vectorised:
            return gym.make_vec(env_id, num_envs=2, delay=delay)
        return gym.make(env_id, delay=delay)

    with pytest.raises(ValueError, match=r"^TaskDispatch-v0 takes no delay, as a decision within"):
        make(DISPATCH, 1)
    assert make(DISPATCH, 0).unwrapped.delay == 0
    for wrong in (-1, 1.0, True, np.nan, "1", None):
        with pytest.raises(ValueError, match=r"^delay must be a whole number from 0"):
            make(RACE, wrong)
    monkeypatch.setattr(batch_state, "installed_memory", lambda: 1e9)
    with pytest.raises(ValueError, match="a smaller budget, a smaller delay or fewer rows"):
        make(RACE, 10**7)
