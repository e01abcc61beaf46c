#!/usr/bin/env bash
# xuance 1.4.4, with gymnasium 1.2.3, scipy 1.17.1, pyyaml 6.0.4, tqdm 4.70.1, pyglet 1.5.15, wandb 0.31.0, tensorboard 2.21.0;
# Python 3.11 or 3.12, as it takes no numpy 2
#
# Policies for a Box of actions end in a tanh, so that actions lie between -1 and 1, and XuanCeEnvWrapper, which make_envs puts
# around each env, is there to scale them to the bounds of the Box. It never does: it looks for the Box before it has one. So
# the policies of SAC, TD3 and DDPG with XuanCe's own files for Pendulum-v1 use at most half of its torque: between -1 and 1 of
# -2 and 2.
# It concerns every env whose Box is not between -1 and 1: wrap it in gymnasium.wrappers.RescaleAction, as for the last line.
. "$(dirname "$0")/fresh.bash"
install gymnasium==1.2.3 scipy==1.17.1 pyyaml==6.0.4 wandb==0.31.0 tensorboard==2.21.0 torch==2.13.0 numpy==1.26.4
install_alone xuance==1.4.4 pyglet==1.5.15 tqdm==4.70.1

expect "Pendulum takes torques between -2 and 2
SAC: actions between -1 and 1; the largest one is played as a torque of 1
TD3: actions between -1 and 1; the largest one is played as a torque of 1
DDPG: actions between -1 and 1; the largest one is played as a torque of 1
SAC, RescaleAction: actions between -1 and 1; the largest one is played as a torque of 2" <<'PY'
import contextlib
import io

import gymnasium as gym
import numpy as np

silent = contextlib.redirect_stdout(io.StringIO())
with silent:
    from xuance.common import get_arguments
    from xuance.environment import make_envs
    from xuance.torch.agents import DDPG_Agent, SAC_Agent, TD3_Agent

OPTIONS = {"render_mode": None, "parallels": 1, "logger": "tensorboard", "log_dir": "logs", "model_dir": "models"}
# large enough that each tanh is at its end for some of them
OBSERVATIONS = 1e6 * np.random.default_rng(0).normal(size=(1000, 3))



def scaled(**options):
    return gym.wrappers.RescaleAction(gym.make("Pendulum-v1", **options), -1.0, 1.0)


def report(name, kind, env="Pendulum-v1"):
    with silent:
        config = get_arguments(kind.__name__.removesuffix("_Agent").lower(), "classic_control", "Pendulum-v1")
        vars(config).update(OPTIONS, env_id=env)
        envs = make_envs(config)
        agent = kind(config, envs)
    actions = agent.get_actions(OBSERVATIONS, test_mode=True)["actions"]
    envs.reset()
    envs.step(actions[[np.argmax(actions)]])
    torque = envs.envs[0].env.unwrapped.last_u
    print(f"{name}: actions between {actions.min():g} and {actions.max():g}", end="; ")
    print(f"the largest one is played as a torque of {torque:g}")


space = gym.make("Pendulum-v1").action_space
print(f"Pendulum takes torques between {space.low[0]:g} and {space.high[0]:g}")
report("SAC", SAC_Agent)
report("TD3", TD3_Agent)
report("DDPG", DDPG_Agent)
gym.register("Scaled-v0", scaled, max_episode_steps=200)
report("SAC, RescaleAction", SAC_Agent, "Scaled-v0")
PY
