"""skrl: PPO learns shares, on the native rows with NEXT_STEP, where it sees the last observation of
an episode.
"""

import gymnasium as gym
import torch
from skrl.agents.torch import ExperimentCfg
from skrl.agents.torch.ppo import PPO, PPO_CFG
from skrl.envs.wrappers.torch import wrap_env
from skrl.memories.torch import RandomMemory
from skrl.trainers.torch import SequentialTrainer
from skrl.utils.model_instantiators.torch import deterministic_model, gaussian_model

ID = "ata_gym:ata_gym/TaskAllocation-v0"
STEPS = 42
FORM = {"observation": "flat", "action": "shares", "reward_unit": "even round", "horizon": 20}
torch.manual_seed(0)
env = wrap_env(gym.make_vec(ID, num_envs=16, **FORM), verbose=False)
spaces = {
    "observation_space": env.observation_space,
    "action_space": env.action_space,
    "device": "cpu",
}
layers = {
    "network": [{"name": "net", "input": "OBSERVATIONS", "layers": [64], "activations": "tanh"}],
}
models = {
    "policy": gaussian_model(
        **spaces,
        **layers,
        output="ACTIONS",
        initial_log_std=-1.0,
    ),  # the env clips the shares
    "value": deterministic_model(**spaces, **layers, output="ONE"),
}
config = PPO_CFG(
    rollouts=STEPS,
    learning_epochs=8,
    mini_batches=4,
    discount_factor=0.9,
    time_limit_bootstrap=True,
    experiment=ExperimentCfg(write_interval=0, checkpoint_interval=0),
)
memory = RandomMemory(memory_size=STEPS, num_envs=16, device="cpu")
agent = PPO(models=models, memory=memory, cfg=config, **spaces)
SequentialTrainer(
    env=env,
    agents=agent,
    cfg={"timesteps": 40 * STEPS, "headless": True, "disable_progressbar": True},
).train()
rows = gym.make_vec(ID, num_envs=64, **FORM)
for name, weight in (("PPO", 1.0), ("uniform", 0.0)):
    seen = rows.reset(seed=1_000_000)[0]
    total = 0.0
    for _ in range(FORM["horizon"]):
        with torch.no_grad():
            mean = models["policy"].act({"observations": torch.as_tensor(seen)}, role="policy")[1][
                "mean_actions"
            ]
        seen, reward, *_ = rows.step(weight * mean.numpy())
        total += reward.mean()
    print(f"{name}: {total:.2f}")
