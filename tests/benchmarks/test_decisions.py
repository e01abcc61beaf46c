"""What decisions cost beside ATA's: of the three defaults, rounds of planning included, and of
every policy.
"""

import re
import time

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.bench.decision_cost import FIRST_ROUNDS, decision_times, timed_scenarios
from ata_policies.registry import DEFAULTS
from docs.policy_costs import SETUP, relative_costs

pytestmark = pytest.mark.benchmark

SCENARIOS = timed_scenarios()


@pytest.mark.parametrize("policy", [*DEFAULTS.values(), "restarting-beta"])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_decisions_of_a_default_and_of_the_quick_learner(scenario: str, policy: str) -> None:
    times, reference = (
        decision_times(name, SCENARIOS[scenario], FIRST_ROUNDS) for name in (policy, "ata")
    )
    ratio = times.mean / reference.mean
    print(
        f"\n{policy}, {scenario}: mean {times.mean:.3g} ms, worst {times.worst:.3g}; ratio of means"
        f" to ATA {ratio:.1f}",
    )
    assert ratio < 50_000


def mean_time(env_id: str, rows: int) -> float:
    envs = gym.make_vec(env_id, num_envs=rows, scenario="icml2025-cifar100")
    policy = ata_policies.make("default", envs)
    observation = envs.reset(seed=0)[0]
    state = None
    taken = []
    for _ in range(43):
        start = time.process_time()
        action, state = policy.predict(observation, state)
        taken.append(1e3 * (time.process_time() - start))
        observation = envs.step(action)[0]
    return float(np.mean(taken[3:]))  # the first compile


@pytest.mark.parametrize("env_id", DEFAULTS)
def test_many_rows_of_a_default(env_id: str) -> None:
    rows, single = (mean_time(env_id, number) for number in (256, 1))
    ratio = rows / (256 * single)
    print(
        f"\n{env_id}, 256 rows: mean {rows:.3g} ms; {ratio:.2f} of 256 single ones (target:"
        " below 1)",
    )
    assert ratio < 100


def test_a_round_costs_at_most_five_of_atas_unless_the_policy_says_why() -> None:
    print(
        f"\nprocessor time of a round's predictions over ATA's, {SETUP}: first 100 rounds, 2,000,"
        " speeds walk",
    )
    silent = []
    for name, costs in ((name, relative_costs(name)) for name in ata_policies.names()):
        print(*(f"{ratio:8.2f}" for ratio in costs), f" {name}")
        if costs.steady > 5 and not re.search(
            r"\bround\s+costs?\b",
            ata_policies.load(name).documentation(),
        ):
            silent.append(name)
    assert not silent, (
        'these cost more than 5 times ATA, and no "a round costs ..." in their docstring says why'
    )
