"""Learned policies: the network without torch, the weights that are shipped, and agents that become
policies.
"""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import safetensors.numpy as safetensors

import ata_policies
from ata_gym.envs.interface.worker_features import ROUND_FEATURES, WIDTH, WORKER_FEATURES
from ata_gym.pools import deterministic
from ata_policies import Setting, check_policy, from_agent
from ata_policies.learned.network import Network, write_network
from ata_policies.learned.policy import WEIGHTS
from ata_policies.observations import with_latency_spread
from ata_policies.steps import play

ALLOCATION, RACE, DISPATCH = (
    f"ata_gym/Task{name}-v0" for name in ("Allocation", "Race", "Dispatch")
)


def tensors(hidden: int = 8, outputs: int = 1) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    shapes = {
        "remember.weight_ih_l0": (3 * hidden, WIDTH),
        "remember.weight_hh_l0": (3 * hidden, hidden),
        "remember.bias_ih_l0": (3 * hidden,),
        "remember.bias_hh_l0": (3 * hidden,),
        "direct.weight": (outputs, WIDTH),
        "of_worker.0.weight": (hidden, 3 * hidden),
        "of_worker.0.bias": (hidden,),
        "of_worker.2.weight": (outputs, hidden),
        "of_worker.2.bias": (outputs,),
    }
    return {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}


def test_it_equals_the_torch_module_round_by_round() -> None:
    torch = pytest.importorskip("torch", reason="extra train is not installed")
    from ata_gym.rl.network import RecurrentWorkersNet

    net = RecurrentWorkersNet(hidden=16)
    rng = np.random.default_rng(0)
    for parameter in net.parameters():
        torch.nn.init.normal_(parameter, 0.0, 0.3)
    features = rng.normal(size=(5, 6, 9, WIDTH)).astype(np.float32)
    features[..., WORKER_FEATURES.index("available")] = rng.random((5, 6, 9)) < 0.7
    features[1, 2, :, WORKER_FEATURES.index("available")] = 0.0
    features[:, :, [1, 4, 7], WORKER_FEATURES.index("untried")] = 1.0
    features[:, 1::2, [4, 7]] = features[:, 1::2, [1]]  # in some rows workers look alike
    numbers, last = net(torch.from_numpy(features))
    own = Network.from_tensors(
        {name: tensor.detach().numpy() for name, tensor in net.state_dict().items()}
    )
    memory = own.begin(6, 9)
    for seen, expected in zip(features, numbers.detach().numpy(), strict=True):
        found, memory = own(seen, memory)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(memory.codes, last.detach().numpy(), rtol=1e-4, atol=1e-5)
    assert np.abs(np.diff(numbers.detach().numpy(), axis=0)).max() > 0.1  # rounds differ
    order = rng.permutation(9)
    permuted, _ = net(torch.from_numpy(features[:, :, order]))
    torch.testing.assert_close(permuted, numbers[..., order], rtol=1e-4, atol=1e-5)


def test_wrong_weights_are_refused() -> None:
    for name, tensor, sentence in (
        ("remember.bias_hh_l0", None, "'remember.bias_hh_l0' is missing"),
        ("direct.weight", np.ones((1, 3), np.float32), "feature_weights must be finite, of shape"),
        ("remember.weight_ih_l0", np.full((24, WIDTH), np.nan), "gates must be finite"),
    ):
        given = {**tensors(), name: tensor}
        with pytest.raises(ValueError, match=sentence):
            Network.from_tensors({name: one for name, one in given.items() if one is not None})


def test_files_that_hold_no_weights_or_changed_ones_are_refused(
    refuses: Any,
    tmp_path: Path,
) -> None:
    (tmp_path / "no.safetensors").write_bytes(b"\x80\x04not weights")
    write_network(tmp_path / "two.safetensors", tensors(outputs=2))
    path = WEIGHTS
    content = bytearray(path.read_bytes())
    some = (
        np.random.default_rng(0).integers(len(content) // 2, len(content) // 4 * 4 - 4, 200)
        // 4
        * 4
    )
    # the tail holds float32 only; the sign and the exponent stay, so all stays finite
    for place in some.tolist():
        content[place] ^= 0xFF
    (tmp_path / "other.safetensors").write_bytes(content)
    safetensors.save_file(safetensors.load_file(path), tmp_path / "without.safetensors")
    for name, sentence in (
        *(
            ("no", "cannot read the weights"),
            ("none", "cannot read the weights"),
            ("two", "output_weights must be finite, of"),
        ),
        (
            "other",
            (
                "are damaged: their checksum belongs to others; take another copy, or write them"
                " with ata-gym pr"
            ),
        ),
        ("without", "have no checksum; take another copy, or write them with ata-gym pretrain"),
    ):
        refuses("learned", sentence, weights=str(tmp_path / f"{name}.safetensors"))
    write_network(tmp_path / "again.safetensors", safetensors.load_file(path))
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_the_shipped_weights_are_small_and_need_no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    env = gym.make(ALLOCATION, scenario="five-workers")
    assert ata_policies.make("learned", env).predict(env.reset(seed=0)[0])[0].shape == (5,)
    assert WEIGHTS.stat().st_size < 100_000


def mean_cost(name: str, scenario: str) -> float:
    envs = gym.make_vec(ALLOCATION, num_envs=32, scenario=scenario)
    steps = play(ata_policies.make(name, envs), envs, seed=2 * 10**6)
    return float(np.log(-sum(step.reward for step in steps)).mean())


@pytest.mark.parametrize("scenario", ["drawn-onoff-v1", "drawn-periodic-v1"])
def test_where_workers_change_it_costs_less_than_every_rule(scenario: str) -> None:
    names = ("learned", "default", "recent-average", "restarting-beta")
    learned, *others = (mean_cost(name, scenario) for name in names)
    assert learned < min(others)


# --- agents ---


def by_hand(env_id: str, action: str, n: int) -> Callable[[Any], Any]:
    def act(seen: Any) -> Any:
        if seen.ndim == 3:
            workers = seen
        else:
            workers = seen[:, : -len(ROUND_FEATURES)].reshape(len(seen), n, -1)
        # started: so that picks are spread
        started = workers[..., WORKER_FEATURES.index("started")]
        slow = workers[..., 1] + 0.1 * np.arange(n) + 2.0 * started
        if action == "assign":
            return slow.argmin(axis=1)
        if action == "start":
            idle = np.where(workers[..., WORKER_FEATURES.index("running")] > 0, np.inf, slow)
            return np.where(idle.min(axis=1) < 1.0, idle.argmin(axis=1), n)
        if action == "dispatch":
            return (slow < 1.0).astype(np.int64)
        shares = np.tanh(-slow / 3)
        if env_id == RACE:
            return np.append(shares, np.zeros((len(shares), 1)), axis=1)
        return shares

    return act


FORMS = [
    (ALLOCATION, "shares"),
    (ALLOCATION, "assign"),
    (RACE, "shares"),
    (DISPATCH, "dispatch"),
    (DISPATCH, "start"),
]


@pytest.mark.parametrize(
    ("observation", "scenario", "latency"),
    [
        ("workers", "five-workers", None),
        ("flat", "drawn-3-to-16-v1", None),
        ("workers", "changing-spot", None),
        ("workers", "five-workers", 2.0),
        ("flat", "five-workers", [1.0, 0.0, 20.0, 3.0, 5.0]),
    ],
)
@pytest.mark.parametrize(("env_id", "action"), FORMS)
def test_an_agent_as_a_policy_does_what_it_does_in_its_env(
    env_id,
    action,
    observation,
    scenario,
    latency,
) -> None:
    rounds = 6
    form = {"scenario": scenario, "horizon": rounds}
    if latency is not None:
        form["latency"] = latency
    env = gym.make_vec(env_id, num_envs=1, observation=observation, action=action, **form)
    n = env.unwrapped.n  # type: ignore[attr-defined]
    agent = by_hand(env_id, action, n)
    policy: Any = from_agent(agent, env)(Setting.from_env(env))
    plain, (seen, _), ended = (
        gym.make_vec(env_id, num_envs=1, **form),
        env.reset(seed=5),
        np.zeros(1, bool),
    )
    while not ended.any():
        decision = agent(seen)
        seen, _, _, ended, _ = env.step(
            decision.astype(np.float32) if action == "shares" else decision,
        )
    for _ in play(policy, plain, seed=5):
        pass
    own, its = (one.unwrapped.checkpoint() for one in (env, plain))  # type: ignore[attr-defined]
    for name in ("runtime", "total_worker_time", "started"):
        assert np.array_equal(own[name], its[name]), name


@pytest.mark.parametrize("env_id", [ALLOCATION, RACE, DISPATCH])
def test_an_agent_that_was_trained_without_latencies_sees_times_of_whole_shares(env_id) -> None:
    sizes = {"pool": {"family": "exponential", "scale": [1.0, 2.0, 4.0]}, "budget": 4}
    form = {ALLOCATION: "assign", RACE: "shares", DISPATCH: "dispatch"}[env_id]
    agent = by_hand(env_id, form, 3)
    seen = []

    def watching(features, _mask=None):
        seen.append(features.copy())
        return agent(features)

    env = gym.make(env_id, observation="workers", action=form, **sizes)
    policy: Any = from_agent(watching, env)(Setting(3, 4))
    late = gym.make(env_id, latency=[0.5, 30.0, 0.0], **sizes)
    observation, _ = late.reset(seed=1)
    state = spread_state = None
    for _ in range(12):
        whole = with_latency_spread({name: part[None] for name, part in observation.items()})
        action, state = policy.predict(observation, state)
        of_shares, spread_state = policy.predict(whole, spread_state)
        assert np.array_equal(action, of_shares[0])
        observation = late.step(action)[0]
    assert {features.shape for features in seen} == {(1, 3, WIDTH)}


def test_learned_plays_whole_shares_where_workers_pay_latencies() -> None:
    # two equal workers, one of which pays a long latency
    env = gym.make(
        ALLOCATION,
        pool=deterministic([1.0, 1.0]),
        latency=[0.0, 12.0],
        budget=8,
        horizon=30,
    )
    shares = [
        decision.action[1] / 8 for decision in play(ata_policies.make("learned", env), env, seed=0)
    ]
    assert np.mean(shares[10:]) < 0.3


@pytest.mark.filterwarnings("ignore:give the class a docstring")
def test_an_agent_has_one_size_unless_it_says_otherwise() -> None:
    env = gym.make(ALLOCATION, observation="workers", action="shares")
    kind = from_agent(by_hand(ALLOCATION, "shares", 5), env)
    assert kind.only_size == (5, 8)
    with pytest.raises(
        ValueError,
        match="was made for 5 workers and a budget of 8, not for 6 and 8",
    ):
        kind(Setting(6, 8))
    check_policy(kind)
    any_size = from_agent(lambda workers: -workers[..., 1], env, any_size=True)
    assert any_size(Setting(51, 23)).setting.n == 51
    with pytest.raises(ValueError, match="an agent sees features"):
        from_agent(by_hand(ALLOCATION, "shares", 5), gym.make(ALLOCATION))
