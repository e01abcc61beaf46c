"""Games of a policy in which what goes wrong late is seen, and whether it prefers fast workers."""

from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.pools import gamma
from ata_gym.scenarios import Scenario
from ata_gym.typing import Floats
from ata_policies.checking.contract import SEED, ContractCheck, agree
from ata_policies.checking.predict_call import (
    Answer,
    FaultError,
    Step,
    global_generators,
    note_draws,
    rows_of,
    sentence_on,
)
from ata_policies.policy import Policy
from ata_policies.registry import load
from ata_policies.setting import Setting
from ata_policies.steps import play

_LONGER, _MOST = 25, 2000  # the long episode has so many times the rounds of the check, and at most so many decisions
_EPISODES = 20  # short episodes that follow
_ROWS = 2
_LOOKED_AT = 40  # decisions that are looked at more closely, evenly spread

_LIKE_ALONE = (
    "a row of a batch has another {what} in round {round} of a longer game than the same row alone: compute along the "
    "last axis, draw from keys such as state.round_keys(), and keep nothing outside the state"
)

_FASTER, _SHAPE = 10.0, 16.0  # of the fast half of the workers, and of their gamma times
_EASY_ROUNDS, _EASY_ROWS = 200, 4
_TRIES = 10  # more rounds for each in which all workers can be tried
_WORSE = 1.1  # a policy that needs so many times the time of even shares is worse than these, beyond chance


class _Moment(NamedTuple):
    """A decision, and the state before it."""

    before: Any
    step: Step


def lasts(check: ContractCheck) -> None:
    """A long episode and many short ones: actions stay legal, and decisions stay what they are alone."""
    policy, generators, kept = check.made(), global_generators(), list[_Moment]()
    state, longest = None, check.setting.horizon or _MOST
    rounds = min(_LONGER * check.rounds, max(1, _MOST // check.steps_a_round), longest)
    for horizon, many in ((rounds, rounds), (min(2, longest), 2 * _EPISODES)):
        envs = check.envs_of(_ROWS, horizon)
        observation, _ = envs.reset(seed=SEED)
        decisions = many * check.steps_a_round
        closely = set(np.linspace(0, decisions - 1, _LOOKED_AT).astype(int).tolist())
        for k in range(decisions):
            round, conditions = k // check.steps_a_round, envs.unwrapped.conditions() if policy.privileged else None
            where = f"in round {round % horizon + 1} of episode {round // horizon + 1} of a longer game"
            try:
                privileged: dict[str, Any] = {"privileged": conditions} if policy.privileged else {}
                action, after = policy.predict(observation, state, deterministic=True, **privileged)
            except Exception as error:
                raise FaultError(f"{where} {sentence_on('predict raises ', error)}") from error
            try:
                played = envs.unwrapped.checked(action)
            except ValueError as error:
                raise FaultError(f"{where} its action is illegal: {error}") from error
            if k in closely and state is not None:
                kept.append(_Moment(state, Step(round + 1, observation, conditions, Answer(np.array(action), after))))
            observation, state = envs.step(played)[0], after
    note_draws(check.faults, generators)
    for e in range(_ROWS):
        alone, row = check.made(seed=SEED + e), slice(e, e + 1)
        for before, step in kept:
            parts = (rows_of(part, row) for part in (step.observation, before, step.conditions))
            agree(check.predict(alone, *parts), rows_of(step.answer, row), _LIKE_ALONE, step.round)


def prefers_the_fast(check: ContractCheck) -> None:
    """Where half of the workers are ten times as fast as the others, it had better not need more than even shares.

    Only the second half of the rounds counts: before, some try slow workers more often than they would get even shares.
    """
    n, budget = check.setting[:2]
    if n == 1:
        return
    mean, uniform = np.where(np.arange(n) % 2 == 0, _FASTER, 1.0), load("uta")
    easy = Scenario(gamma(np.full(n, _SHAPE), mean / _SHAPE), budget, _EASY_ROUNDS + _TRIES * -(-n // budget))
    even = _runtime(uniform.env_id, uniform(Setting.in_scenario(easy), seed=SEED), easy)
    try:
        needed = _runtime(check.kind.env_id, check.make(Setting.in_scenario(easy), seed=SEED), easy)
    except Exception as error:
        raise FaultError(f"where half of the workers are fast, {sentence_on('playing it raises ', error)}") from error
    ratio = float(np.exp(np.log(needed / even).mean()))
    if ratio > _WORSE:
        check.advice[
            f"where half of the workers are ten times as fast, it needs {ratio:.3g} times the time of even shares: are "
            "its scores upside down? The lower the score, the more tasks"
        ] = None


def _runtime(env_id: str, policy: Policy, scenario: Scenario) -> Floats:
    """The time of the second half of the rounds, (rows,)."""
    envs = gym.make_vec(env_id, num_envs=_EASY_ROWS, scenario=scenario)
    runtimes = np.array([step.info["runtime"] for step in play(policy, envs, SEED) if step.round_over])
    return np.asarray(runtimes[-1] - runtimes[len(runtimes) // 2])
