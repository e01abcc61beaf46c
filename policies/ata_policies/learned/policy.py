"""Policies whose decisions come from a network over workers that was trained before."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from ata_gym.envs.interface.shares import tasks_of_shares
from ata_gym.envs.interface.worker_features import Features, RoundFeatures, WorkerMemory, features_of, present_in
from ata_gym.typing import Floats, Ints
from ata_policies.learned.network import Network, read_network
from ata_policies.observations import Observation
from ata_policies.policy import DispatchPolicy, Policy, Setting, State

WEIGHTS = Path(__file__).parent / "weights"
_MOST_LOGS = 1.2  # the largest feature "log count", of 400 results: few counts in the training were larger


class _Learned(Policy):
    """A policy with a network, and the features that it reads.

    - ``weights``: a file of a ``WorkersNet`` with one number for each worker, as ``ata-gym pretrain`` or
      ``write_network`` writes it; by default the file of the package.
    """

    source = "ours"
    constants = "weights of a network"
    assumes = "workers like those that it was trained on"
    priced = True
    nonstationary = True
    belief = WorkerMemory
    shipped = ""

    def __init__(
        self, setting: Setting, *, weights: str | Path | None = None, network: Network | None = None, seed: int = 0
    ) -> None:
        super().__init__(setting, seed=seed)
        self.network = network or read_network(WEIGHTS / self.shipped if weights is None else Path(weights))
        if self.network.last_bias.shape != (1,):
            raise ValueError(f"the network must give one number for each worker, not {self.network.last_bias.shape[0]}")
        self._of_round = RoundFeatures(setting.budget, setting.price, setting.horizon)

    def features(self, state: State, seen: Observation) -> Features:
        """The inputs of the network, shape (E, n, 15)."""
        features: Features = features_of(state.belief, self._of_round, state.round - 1, seen)
        features[..., 0] = np.minimum(features[..., 0], _MOST_LOGS)
        return features


class LearnedAllocation(_Learned):
    """Shares of the budget from a network that was trained on workers drawn at random. Ours.

    The network gives a logit for each worker, from what was seen of it and of the others; the budget is shared by
    softmax and the method of largest remainders.
    """

    shipped = "learned.safetensors"

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Share the budget by the workers' logits."""
        logits: Floats = self.network(self.features(state, seen))[..., 0].astype(np.float64)
        tasks = tasks_of_shares(logits, self.setting.budget, 1.0, present_in(seen))
        return tasks, state._replace(belief=state.belief.asked(tasks))


class LearnedDispatch(_Learned, DispatchPolicy):
    """Who should be working, from a network that was trained on workers drawn at random. Ours.

    The network gives a logit for each worker, from what was seen of it and of the others and from the state of the
    round; workers with a positive one should be working.
    """

    shipped = "learned-dispatch.safetensors"

    def act(self, state: State, seen: Observation) -> tuple[Ints, State]:
        """Start the workers with positive logits."""
        action = (self.network(self.features(state, seen))[..., 0] > 0).astype(np.int64)
        return action, state._replace(belief=state.belief.asked(action))
