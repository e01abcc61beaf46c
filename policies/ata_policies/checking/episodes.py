"""Episodes that show what goes wrong late, and whether a policy prefers fast workers."""

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
    PredictCall,
    global_generators,
    note_draws,
    rows_of,
    sentence_on,
)
from ata_policies.policy import Policy
from ata_policies.registry import load
from ata_policies.setting import Setting
from ata_policies.steps import play

_LONG_EPISODE_FACTOR = 25  # the rounds of the long episode over the rounds of the check
_MOST_DECISIONS = 2000  # the most decisions of the long episode
_SHORT_EPISODES = 20  # short episodes that follow
_ROWS = 2
_COMPARED_DECISIONS = 40  # decisions that are compared with a row alone, evenly spread

_ROW_FAULT = (
    "a row of a batch has another {part} in round {round} of a longer run than the same row alone:"
    " compute along the last axis, draw from keys such as state.round_keys(), and keep nothing"
    " outside the state"
)

_SPEED_RATIO = 10.0  # the mean time of the slow half of the workers over the mean of the fast half
_SHAPE = 16.0  # the shape of their gamma times
_EASY_ROUNDS = 200
_EASY_ROWS = 4
_TRIAL_ROUNDS = 10  # more rounds for each in which all workers can be tried
# a policy that needs so many times the time of even shares is worse than even shares, beyond chance
_WORSE_RATIO = 1.1


class _Moment(NamedTuple):
    """A decision, and the state before it."""

    state: Any
    """The state before the decision."""
    step: PredictCall
    """The decision."""


def lasts(check: ContractCheck) -> None:
    """Play a long episode and many short ones.

    Actions stay legal, and the decisions of a row stay what they are for the row alone.

    Raises:
        FaultError: If they do not.
    """
    policy = check.new_policy()
    generators = global_generators()
    moments = list[_Moment]()
    state = None
    longest = check.setting.horizon or _MOST_DECISIONS
    rounds = min(
        _LONG_EPISODE_FACTOR * check.rounds, max(1, _MOST_DECISIONS // check.steps_a_round), longest
    )
    for horizon, rounds_played in ((rounds, rounds), (min(2, longest), 2 * _SHORT_EPISODES)):
        envs = check.envs_of(_ROWS, horizon)
        observation, _ = envs.reset(seed=SEED)
        decisions = rounds_played * check.steps_a_round
        compared_decisions = set(
            np.linspace(0, decisions - 1, _COMPARED_DECISIONS).astype(int).tolist()
        )
        for k in range(decisions):
            round = k // check.steps_a_round
            if policy.privileged:
                conditions = envs.unwrapped.conditions()
            else:
                conditions = None
            episode, round_in_episode = divmod(round, horizon)
            position = f"in round {round_in_episode + 1} of episode {episode + 1} of a longer run"
            privileged: dict[str, Any]
            if policy.privileged:
                privileged = {"privileged": conditions}
            else:
                privileged = {}
            try:
                action, next_state = policy.predict(
                    observation, state, deterministic=True, **privileged
                )
            except (Exception, SystemExit) as error:
                raise FaultError(f"{position} {sentence_on('predict raises ', error)}") from error
            try:
                played = envs.unwrapped.check_actions(action)
            except ValueError as error:
                raise FaultError(f"{position} its action is illegal: {error}") from error
            if k in compared_decisions and state is not None:
                answer = Answer(np.array(action), next_state)
                moments.append(
                    _Moment(state, PredictCall(round + 1, observation, conditions, answer))
                )
            observation = envs.step(played)[0]
            state = next_state
    note_draws(check.faults, generators)
    # Each row is played again alone, from the states that it had in the batch, with its own seed.
    for e in range(_ROWS):
        policy_alone = check.new_policy(seed=SEED + e)
        row = slice(e, e + 1)
        for state_before, step in moments:
            arguments = (
                rows_of(argument, row)
                for argument in (step.observation, state_before, step.conditions)
            )
            agree(
                check.predict(policy_alone, *arguments),
                rows_of(step.answer, row),
                _ROW_FAULT,
                step.round,
            )


def prefers_the_fast(check: ContractCheck) -> None:
    """Advise a policy that needs more than even shares where half of the workers are fast.

    They are ten times as fast as the others. Only the second half of the rounds counts: before,
    some try slow workers more often than they would get even shares.
    """
    n, budget = check.setting[:2]
    if n == 1:
        return
    mean = np.where(np.arange(n) % 2 == 0, _SPEED_RATIO, 1.0)
    uniform = load("uta")
    easy = Scenario(
        gamma(np.full(n, _SHAPE), mean / _SHAPE),
        budget,
        _EASY_ROUNDS + _TRIAL_ROUNDS * -(-n // budget),
    )
    even_time = _runtime(uniform.env_id, uniform(Setting.from_scenario(easy), seed=SEED), easy)
    try:
        policy_time = _runtime(
            check.kind.env_id, check.make(Setting.from_scenario(easy), seed=SEED), easy
        )
    except (Exception, SystemExit) as error:
        raise FaultError(
            f"where half of the workers are fast, {sentence_on('playing it raises ', error)}",
        ) from error
    ratio = float(np.exp(np.log(policy_time / even_time).mean()))
    if ratio > _WORSE_RATIO:
        check.advice[
            f"where half of the workers are ten times as fast, it needs {ratio:.3g} times the time"
            " of even shares: are its scores upside down? The lower the score, the more tasks"
        ] = None


def _runtime(env_id: str, policy: Policy, scenario: Scenario) -> Floats:
    """Return the time of the second half of the rounds, (rows,)."""
    envs = gym.make_vec(env_id, num_envs=_EASY_ROWS, scenario=scenario)
    runtimes = np.array(
        [step.info["runtime"] for step in play(policy, envs, SEED) if step.round_over],
    )
    return np.asarray(runtimes[-1] - runtimes[len(runtimes) // 2])
