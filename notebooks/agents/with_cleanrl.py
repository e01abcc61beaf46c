"""PPO in one file, as CleanRL has it: plain torch, the native rows, and WorkersNet as actor and
critic.
"""

import gymnasium as gym
import torch

from ata_gym.rl.network import WorkersNet

torch.manual_seed(0)
form = {"observation": "workers", "action": "shares", "reward_unit": "even round", "horizon": 20}
envs = gym.make_vec("ata_gym:ata_gym/TaskAllocation-v0", 16, autoreset_mode="SameStep", **form)
net = WorkersNet()
optimizer = torch.optim.Adam(net.parameters(), lr=1e-3)
seen = torch.as_tensor(envs.reset(seed=0)[0])
for _ in range(30):
    steps = []
    for _ in range(40):
        action = torch.distributions.Normal(net(seen)[0].squeeze(-1).detach(), 0.4).sample()
        after, reward, _, truncated, _ = envs.step(action.numpy())
        steps.append((seen, action, torch.as_tensor(reward).float(), torch.as_tensor(truncated)))
        seen = torch.as_tensor(after)
    target = [net(seen)[1].squeeze(-1).detach()]
    for _, _, reward, ended in reversed(steps):
        target.insert(0, reward + 0.9 * target[0] * ~ended)
    x, a, target = (
        torch.cat(part) for part in ([s[0] for s in steps], [s[1] for s in steps], target[:-1])
    )
    for epoch in range(8):
        loc, value = (numbers.squeeze(-1) for numbers in net(x))
        chance = torch.distributions.Normal(loc, 0.4).log_prob(a).sum(-1)
        if epoch == 0:
            old = chance.detach()
            gain = torch.nn.functional.layer_norm((target - value).detach(), value.shape)
        ratio = (chance - old).exp()
        loss = (value - target).pow(2).mean() - torch.min(
            gain * ratio,
            gain * ratio.clamp(0.8, 1.2),
        ).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
for name, weight in (("PPO", 1.0), ("uniform", 0.0)):
    seen = envs.reset(seed=10**6)[0]
    total = 0.0
    for _ in range(form["horizon"]):
        seen, reward, *_ = envs.step(
            weight * net(torch.as_tensor(seen))[0].squeeze(-1).detach().numpy(),
        )
        total += reward.mean()
    print(f"{name}: {total:.2f}")
