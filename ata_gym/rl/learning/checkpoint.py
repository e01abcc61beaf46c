"""Everything that a run of Stable-Baselines3 remembers between two rollouts, as a tree of tensors and plain values."""

from __future__ import annotations

import json
from typing import Any

import ata_gym.rl.needs_sb3  # noqa: F401 - before what needs torch

import numpy as np
import torch
from stable_baselines3.common.buffers import ReplayBuffer

_COUNTERS = ("num_timesteps", "_n_updates", "_n_calls", "_episode_num", "_current_progress_remaining")
_OF_BUFFER = ("observations", "next_observations", "actions", "rewards", "dones", "timeouts")


def remembered(agent: Any) -> dict[str, Any]:
    """The agent, its env, its replay buffer where it has one, and the states of all random generators it draws from.

    What only TensorBoard's log shows, such as mean returns, is not kept.
    """
    optimizer = agent.policy.optimizer.state_dict()
    kind, words, *rest = np.random.get_state()  # noqa: NPY002 - Stable-Baselines3 draws from it
    assert kind == "MT19937"
    tree = {
        "counters": {name: getattr(agent, name) for name in _COUNTERS if hasattr(agent, name)},
        "policy": agent.policy.state_dict(),
        "optimizer": {  # keyed by texts: a tree of tensors and plain values
            "state": {str(key): value for key, value in optimizer["state"].items()},
            "groups": json.dumps(optimizer["param_groups"]),
        },
        "torch": torch.get_rng_state(),
        "numpy": {"words": words, "rest": json.dumps(rest)},
        "space": json.dumps(agent.action_space.np_random.bit_generator.state),
        "env": agent.env.bare.checkpoint(),
        "observation": agent._last_obs,
        "starts": agent._last_episode_starts,
    }
    buffer = getattr(agent, "replay_buffer", None)
    if isinstance(buffer, ReplayBuffer):
        used = buffer.buffer_size if buffer.full else buffer.pos
        tree["buffer"] = {"pos": buffer.pos, "full": buffer.full}
        tree["buffer"] |= {name: getattr(buffer, name)[:used] for name in _OF_BUFFER}
    return tree


def restore(agent: Any, tree: dict[str, Any]) -> None:
    """Put an agent that was made in the same way where :func:`remembered` was called; its ``learn`` goes on there."""
    for name, value in tree["counters"].items():
        setattr(agent, name, value)
    agent.policy.load_state_dict(tree["policy"])
    state = {int(key): value for key, value in tree["optimizer"]["state"].items()}
    agent.policy.optimizer.load_state_dict({"state": state, "param_groups": json.loads(tree["optimizer"]["groups"])})
    agent.env.reset()
    agent.env.bare.restore({name: part.numpy() for name, part in tree["env"].items()})
    agent._last_obs = tree["observation"].numpy()
    agent._last_episode_starts = tree["starts"].numpy()
    if "buffer" in tree:
        kept, buffer = tree["buffer"], agent.replay_buffer
        buffer.pos, buffer.full = kept["pos"], kept["full"]
        for name in _OF_BUFFER:
            getattr(buffer, name)[: len(kept[name])] = kept[name].numpy()
    torch.set_rng_state(tree["torch"])
    words = tree["numpy"]["words"].numpy()
    np.random.set_state(("MT19937", words, *json.loads(tree["numpy"]["rest"])))  # noqa: NPY002
    agent.action_space.np_random.bit_generator.state = json.loads(tree["space"])
