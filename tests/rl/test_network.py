"""The network for workers and the policy class: who is in which place makes no difference, and any
number will do.
"""

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="extra train is not installed")
sb3 = pytest.importorskip("stable_baselines3", reason="extra rl is not installed")

if True:  # after the check that they are installed
    from ata_gym.envs.interface.worker_features import WIDTH, WORKER_FEATURES
    from ata_gym.rl.network import WorkersNet
    from ata_gym.rl.sb3.policy import WorkersPolicy
    from ata_gym.rl.sb3.vec_env import make_vec_env

IDS = {
    "shares": "TaskAllocation",
    "assign": "TaskAllocation",
    "dispatch": "TaskDispatch",
    "start": "TaskDispatch",
}
AVAILABLE = WORKER_FEATURES.index("available")


def features(rows: int, n: int, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=(rows, n, WIDTH)).astype(np.float32)
    drawn[..., AVAILABLE] = rng.random((rows, n)) < 0.8
    return torch.from_numpy(drawn)


def envs_of(n: int, action: str, budget: int) -> Any:
    pool = {"family": "exponential", "scale": np.linspace(1.0, 9.0, n).tolist()}
    arguments = {
        "pool": pool,
        "budget": budget,
        "horizon": 5,
        "observation": "workers",
        "action": action,
    }
    return make_vec_env(f"ata_gym/{IDS[action]}-v0", 2, seed=0, **arguments)


def ppo(envs: Any) -> Any:
    return sb3.PPO(WorkersPolicy, envs, n_steps=8, batch_size=8, seed=0, device="cpu")


def randomised(module: Any) -> Any:
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    return module


@pytest.mark.parametrize("n", [1, 5, 51])
def test_permuted_workers_have_permuted_numbers_and_those_that_are_away_do_not_touch_the_others(
    n: int,
) -> None:
    torch.manual_seed(0)
    net = randomised(WorkersNet(for_worker=2, for_row=3, hidden=16))
    inputs = features(4, n)
    order = torch.from_numpy(np.random.default_rng(1).permutation(n))
    of_workers, of_row = net(inputs)
    permuted, same = net(inputs[:, order])
    torch.testing.assert_close(permuted, of_workers[:, order], rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(same, of_row, rtol=1e-5, atol=1e-5)
    assert n == 1 or of_workers.std(dim=1).min() > 0.01
    away = inputs[..., AVAILABLE] == 0
    inputs[away] = torch.randn_like(inputs[away]).index_fill(-1, torch.tensor(AVAILABLE), 0.0)
    other_numbers, as_before = net(inputs)
    assert torch.equal(as_before, of_row)
    assert torch.equal(other_numbers[~away], of_workers[~away])


@pytest.mark.parametrize("action", IDS)
def test_permuted_workers_permute_the_distribution_of_actions(action: str) -> None:
    n = 7
    envs = envs_of(7, action, budget=8)
    agent = ppo(envs)
    inputs = features(2, n)
    randomised(agent.policy)
    order = np.random.default_rng(2).permutation(n)
    for _ in range(8):
        sample = np.asarray(envs.action_space.sample())
        if sample.ndim:
            moved = sample[order]
        else:
            moved = np.asarray(list(order).index(sample) if sample < n else sample)
        log = [
            agent.policy.get_distribution(where).log_prob(torch.from_numpy(np.stack([what, what])))
            for where, what in ((inputs, sample), (inputs[:, order], moved))
        ]
        torch.testing.assert_close(log[0], log[1], rtol=1e-4, atol=1e-5)


def test_the_weights_of_one_agent_play_any_number_of_workers() -> None:
    trained, larger = (ppo(envs_of(n, "shares", budget=2 * n)) for n in (5, 51))
    randomised(trained.policy)
    larger.set_parameters(trained.get_parameters())
    actions, _ = larger.predict(larger.env.reset(), deterministic=True)
    assert actions.shape == (2, 51)


def test_an_agent_begins_as_shares_that_fall_with_the_mean() -> None:
    envs = make_vec_env(
        "ata_gym/TaskAllocation-v0",
        1,
        observation="workers",
        action="shares",
        seed=0,
    )
    agent = ppo(envs)
    observation = envs.reset()
    for _ in range(5):
        observation, *_ = envs.step(np.zeros((1, 5), np.float32))
    mean = np.asarray(observation)[0, :, WORKER_FEATURES.index("log mean")]
    shares = agent.predict(observation, deterministic=True)[0][0]
    assert np.argsort(shares).tolist() == np.argsort(-mean).tolist()


def test_other_algorithms_and_other_observations_are_refused_by_a_sentence() -> None:
    for algorithm, action in (("SAC", "shares"), ("TD3", "shares"), ("DQN", "assign")):
        with pytest.raises(
            AttributeError,
            match=r'WorkersPolicy .* for PPO and A2C; SAC, TD3 and DQN .* "MlpPolicy"',
        ):
            getattr(sb3, algorithm)(
                WorkersPolicy,
                envs_of(5, action, budget=8),
                buffer_size=10,
                device="cpu",
            )
    envs = make_vec_env("ata_gym/TaskAllocation-v0", 1, observation="flat", action="shares")
    with pytest.raises(ValueError, match='WorkersPolicy needs an env with observation="workers"'):
        sb3.PPO(WorkersPolicy, envs, device="cpu")


def test_an_agent_without_a_rule_explores_more() -> None:
    settings: list[dict[str, Any]] = [
        {},
        {"from_rule": False},
        {"from_rule": False, "log_std_init": -3.0},
    ]
    agents = [
        sb3.PPO(WorkersPolicy, envs_of(5, "shares", 8), policy_kwargs=options, device="cpu")
        for options in settings
    ]
    assert [agent.policy.log_std.item() for agent in agents] == [-2.0, -1.0, -3.0]
