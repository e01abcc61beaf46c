#!/usr/bin/env bash
# skrl 2.1.1, gymnasium 1.4.0
#
# Where an episode ends by truncation (a time limit), the advantages and returns of PPO and A2C by default go on into the next
# episode: each step is credited with the rewards of all episodes to the end of the rollout, as if nothing had ended. The option
# time_limit_bootstrap=True, by its name about the value at the end alone, cures it in PPO and A2C, but not in PPO_RNN and
# A2C_RNN. Here each reward is 1, each value 0, discount and lambda are 1, and episodes are truncated after two steps, so that
# 2 1 2 1 is right with and without a bootstrap.
# It concerns every env with a time limit: set time_limit_bootstrap=True, and take PPO_RNN and A2C_RNN only where episodes end
# by termination.
. "$(dirname "$0")/fresh.bash"
install skrl==2.1.1 gymnasium==1.4.0 torch==2.13.0 numpy==2.4.6

expect "rewards to the end of the episode: 2 1 2 1
A2C: 4 3 2 1, with time_limit_bootstrap: 2 1 2 1
PPO: 4 3 2 1, with time_limit_bootstrap: 2 1 2 1
A2C_RNN: 4 3 2 1, with time_limit_bootstrap: 4 3 2 1
PPO_RNN: 4 3 2 1, with time_limit_bootstrap: 4 3 2 1" <<'PY'
import logging

import numpy as np
import torch
from gymnasium.spaces import Box
from skrl.agents.torch.a2c import A2C, A2C_RNN
from skrl.agents.torch.ppo import PPO, PPO_RNN
from skrl.memories.torch import RandomMemory
from skrl.models.torch import DeterministicMixin, GaussianMixin, Model

logging.disable()
SPACES = {"observation_space": Box(-1.0, 1.0, (1,)), "action_space": Box(-1.0, 1.0, (1,)), "device": "cpu"}
ZERO = torch.zeros(1, 1)
TRUNCATED = [False, True, False, True]


class Policy(GaussianMixin, Model):
    def __init__(self):
        Model.__init__(self, **SPACES)
        GaussianMixin.__init__(self)
        self.weight = torch.nn.Parameter(torch.zeros(1))

    def compute(self, inputs, role):
        return self.weight * inputs["observations"], {"log_std": torch.zeros(1)}


class Value(DeterministicMixin, Policy):
    def __init__(self):
        Policy.__init__(self)
        DeterministicMixin.__init__(self)


def returns(kind, bootstrap):
    memory = RandomMemory(memory_size=4, num_envs=1, device="cpu")
    options = {"rollouts": 4, "discount_factor": 1.0, "gae_lambda": 1.0, "time_limit_bootstrap": bootstrap}
    agent = kind(models={"policy": Policy(), "value": Value()}, memory=memory, cfg=options, **SPACES)
    agent.init()
    agent.enable_training_mode(True)
    for step, truncated in enumerate(TRUNCATED):
        when = {"timestep": step, "timesteps": 4}
        told = {"observations": ZERO, "states": None, "next_observations": ZERO, "next_states": None, "infos": {}}
        told |= {"terminated": torch.tensor([[False]]), "truncated": torch.tensor([[truncated]])}
        with torch.no_grad():
            actions, _ = agent.act(ZERO, None, **when)
            agent.record_transition(actions=actions, rewards=torch.ones(1, 1), **told, **when)
        agent.post_interaction(**when)
    return " ".join(f"{x:g}" for x in memory.get_tensor_by_name("returns").flatten())


steps, ends = np.arange(4), np.flatnonzero(TRUNCATED)
print("rewards to the end of the episode:", *(ends[np.searchsorted(ends, steps)] - steps + 1))
for kind in (A2C, PPO, A2C_RNN, PPO_RNN):
    print(f"{kind.__name__}: {returns(kind, False)}, with time_limit_bootstrap: {returns(kind, True)}")
PY
