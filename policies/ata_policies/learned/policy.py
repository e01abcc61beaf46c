"""A policy whose decisions come from a network over workers that was trained before."""

from pathlib import Path

import numpy as np

from ata_gym.envs.interface.shares import tasks_of_shares
from ata_gym.envs.interface.worker_features import (
    RoundFeatures,
    WorkerMemory,
    features_of,
    present_in,
)
from ata_gym.scenarios import SPLITS
from ata_gym.typing import Floats, Ints
from ata_policies.learned.network import Network, NetworkMemory, read_network
from ata_policies.observations import Observation
from ata_policies.policy import Policy, State
from ata_policies.setting import Setting

WEIGHTS = Path(__file__).parent / "learned.safetensors"
# the largest feature "log count", of 400 results: few counts in the training were larger
_MOST_LOGS = 1.2
# added at random to logits, so that among workers that look alike not always the first get tasks
_TIES = 1e-6


class Learned(Policy[WorkerMemory, NetworkMemory]):
    """Shares of the budget from a recurrent network that was trained on workers drawn at random.

    Ours. The network gives a logit for each worker, from what was seen of it and of the others; the
    budget is shared by softmax and the method of largest remainders, ties at random.

    Args:
        weights: A file of a ``RecurrentWorkersNet``, as ``ata-gym pretrain`` or ``write_network``
            writes it; by default the file of the package.
        network: The network itself, in place of a file.
    """

    source = "ours"
    constants = "weights of a network"
    assumes = "workers like those that it was trained on"
    priced = True
    nonstationary = True
    trained_on = SPLITS["train"]
    belief = WorkerMemory

    def __init__(
        self,
        setting: Setting,
        *,
        weights: str | Path | None = None,
        network: Network | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(setting, seed=seed)
        if weights is None:
            weights = WEIGHTS
        if network is None:
            network = read_network(Path(weights))
        self.network = network
        self._of_round = RoundFeatures(setting.budget, setting.price, setting.horizon)

    def first_plan(self, rows: int) -> NetworkMemory:
        return self.network.begin(rows, self.setting.n)

    def act(
        self, state: State[WorkerMemory, NetworkMemory], observation: Observation
    ) -> tuple[Ints, State[WorkerMemory, NetworkMemory]]:
        belief = state.belief.with_answers(observation)
        tasks, memory = shares(
            self.network,
            belief,
            state.plan,
            self._of_round,
            state.round - 1,
            observation,
            state.round_uniforms(self.setting.n, 0),
        )
        return tasks, state._replace(belief=belief.with_assigned(tasks), plan=memory)

    def note_tasks(
        self, state: State[WorkerMemory, NetworkMemory], tasks: Ints
    ) -> State[WorkerMemory, NetworkMemory]:
        return state._replace(belief=state.belief.with_assigned(tasks))


def shares(
    network: Network,
    workers: WorkerMemory,
    memory: NetworkMemory,
    of_round: RoundFeatures,
    round: Ints,
    observation: Observation,
    uniforms: Floats,
) -> tuple[Ints, NetworkMemory]:
    """Share a budget by the network's logits; return the tasks, (E, n), and its next memory.

    Args:
        network: The network.
        workers: What was seen of the workers.
        memory: What the network remembers.
        of_round: What the features hold of the scenario.
        round: (E,) the coming round, from 0 on.
        observation: The feedback of the last round; places without a worker get nothing.
        uniforms: (E, n) numbers that break ties.
    """
    features = features_of(workers, of_round, round, observation)
    features[..., 0] = np.minimum(features[..., 0], _MOST_LOGS)
    logits, memory = network(features, memory)
    scores = logits + _TIES * uniforms
    return tasks_of_shares(scores, of_round.budget, 1.0, present_in(observation)), memory
