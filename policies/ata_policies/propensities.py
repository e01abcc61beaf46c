"""How likely a decision was, for estimates of what another policy would have cost."""

from typing import Any, NamedTuple

import numpy as np

from ata_gym.simulation.keys import derive_keys, stream_keys
from ata_gym.typing import Ints, Worker
from ata_gym.utils.trees import map_leaves
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State

_REDRAW_STREAM = 17
"""The stream of keys of decisions that are drawn again; the decisions themselves have another."""


class Propensities(NamedTuple):
    """How likely the decision of a round was before its random numbers were drawn.

    They are frequencies among M + 1 draws of the decision from the same state, the decision that
    was taken among them: the draws are exchangeable, so that the mean of 1{drawn} / frequency is
    1 - (1 - p)^(M + 1) where the probability is p, and not above 1 (``Allocator.propensities``).
    Their standard error is sqrt(p (1 - p) / (M + 1)), and 0 for a policy without randomness.
    """

    workers: dict[Worker, float]
    """By name, the probability that the worker gets a task in the round, 0 to 1."""
    allocation: float
    """The probability of this very allocation, above 0."""


def redrawn(policy: Policy, observation: Observation, state: State, draws: int) -> Ints:
    """Return the decisions of a policy in one state under other random numbers, (draws, n).

    Args:
        policy: The policy.
        observation: What it decides on, of one row.
        state: What it remembers before that, of one row.
        draws: The number M of draws.
    """
    again: Any = map_leaves(lambda leaf: np.repeat(leaf, draws, axis=0), state)
    own_key = stream_keys(policy.seed, stream=_REDRAW_STREAM)
    keys = derive_keys(own_key, state.episode * 2**16 + state.round, np.arange(draws))
    batch = {
        name: np.repeat(np.asarray(values)[None], draws, axis=0)
        for name, values in observation.items()
    }
    actions: Ints = policy.predict(batch, again._replace(key=keys))[0]
    return actions
