"""Policies as compositions: every memory with every estimate and rule, and what is refused."""

from __future__ import annotations

import itertools
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import shifted_exponential
from ata_policies import Setting, Totals
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES, ComposedPolicy, names_of

POOL = shifted_exponential([1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, 5.0])
CHANGES = [Spot(leaves=0.05, returns=0.3, deadline=30.0)]
SETTING = Setting(n=5, budget=7, pool=POOL)
ALL = list(itertools.product(MEMORIES, ESTIMATES, RULES))

OWN = {"median-of-means": "sums in blocks", "catoni": "sums in blocks", "truncated-mean": "clipped totals"}
DEVIATIONS = {"ucb-v", "kl-gamma", "thompson-gamma"}  # needed by these
SHAPE = {"thompson", "thompson-gamma", "kl-lcb", "kl-gamma"}  # known by these


def refusal(memory: str, estimate: str, rule: str) -> str | None:
    """Why these parts do not fit together."""
    if estimate in OWN and memory != "everything":
        return f'{estimate} keeps {OWN[estimate]}, which the memory {memory} cannot give: use memory="everything"'
    if estimate in OWN and rule == "beta":
        return f"the rule beta needs the spread of the task times, which {estimate} does not estimate"
    if memory == "prior" and (estimate in DEVIATIONS or (rule == "beta" and estimate not in SHAPE)):
        return "a prior holds counts and means, and this estimate needs deviations: use another memory"
    return None


def made(memory: str, estimate: str, rule: str, **hyperparameters: Any) -> ComposedPolicy:
    return ComposedPolicy(SETTING, memory=memory, estimate=estimate, rule=rule, **hyperparameters)


WORLD: dict[str, Any] = {"pool": POOL, "budget": 7, "changes": CHANGES}


PAIRWISE = [
    (memory, estimate, list(RULES)[(i + j) % len(RULES)])
    for (i, memory), (j, estimate) in itertools.product(enumerate(MEMORIES), enumerate(ESTIMATES))
]
"""Every two parts that there are together."""


@pytest.mark.parametrize("parts", [parts for parts in PAIRWISE if refusal(*parts) is None], ids="-".join)
def test_a_combination_plays(play: Any, parts: tuple[str, str, str]) -> None:
    """20 legal rounds, of which a row is what it is alone."""
    more: dict[str, Any] = {"prior": {"prior": Totals(*np.full((2, 1, 5), 2.0))}, "window": {"window": 12}}
    more = more.get(parts[0], {})
    run = play(made(*parts, **more), 20, 3, **WORLD)
    policy, state = made(*parts, seed=2, **more), None
    for expected, observation in zip(run.actions[:, 2], run.seen, strict=True):
        action, state = policy.predict({name: field[2] for name, field in observation.items()}, state)
        np.testing.assert_array_equal(action, expected)


def test_how_many_are_refused() -> None:
    """3 estimates have a memory of their own and no spread; with a prior 3 others, and 4 more with beta."""
    assert len(ALL) == 5 * 12 * 3
    refused = [parts for parts in ALL if refusal(*parts) is not None]
    assert len(refused) == 3 * 4 * 3 + 3 + 3 * 3 + 4
    for parts in refused:
        with pytest.raises(ValueError) as caught:  # noqa: PT011
            made(*parts)
        assert str(refusal(*parts)) in str(caught.value)


def test_names_of_hyperparameters_are_unique_over_parts_that_fit_together() -> None:
    for memory, estimate, rule in ALL:
        if refusal(memory, estimate, rule) is None:
            names = [n for kind in (ESTIMATES[estimate], MEMORIES[memory], RULES[rule]) for n in names_of(kind)]
            reserved = ["estimate", "memory", "rule", "availability", "seed", "setting"]
            assert len({*names, *reserved}) == len(names) + len(reserved)


@pytest.mark.parametrize(
    ("hyperparameters", "message"),
    [
        ({"memory": "windows"}, r"there is no memory 'windows'; did you mean window"),
        ({"estimate": "tompson"}, r"there is no estimate 'tompson'; did you mean thompson"),
        ({"rule": "betta"}, r"there is no rule 'betta'; did you mean beta\?"),
        ({"memory": 3}, "there is no memory '3'"),
        ({"memory": "window", "discount": 0.9}, "does not take discount; its hyperparameters are: shape, window, of"),
        ({"widow": 6}, "thompson with memory everything and rule proxy does not take widow; .* are: shape$"),
        ({"estimate": "mean", "shape": 1.0}, "does not take shape; its hyperparameters are: none"),
        ({"availability": 1}, "availability must be"),
    ],
)
def test_what_is_unknown_or_wrong(hyperparameters: dict[str, Any], message: str) -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=7)
    with pytest.raises(ValueError, match=message):
        ata_policies.make("thompson", env, **hyperparameters)


@pytest.mark.parametrize(
    ("name", "preset", "parts"),
    [
        ("restarting-beta", "thompson-gamma", {"memory": "restarting", "rule": "beta"}),
        ("epsilon-uniform", "certainty-equivalence", {"rule": "epsilon-uniform"}),
        ("ata-icml", "ata", {"version": "icml"}),
        ("ata-empirical-icml", "ata-empirical", {"version": "icml"}),
        ("ata-icml:memory=window", "ata", {"version": "icml", "memory": "window"}),
        ("thompson:memory=restarting:availability=False", "thompson", {"memory": "restarting", "availability": False}),
    ],
)
def test_a_preset_is_its_composition(play: Any, name: str, preset: str, parts: dict[str, Any]) -> None:
    one, other = play(name, 40, 2, **WORLD), play(preset, 40, 2, hyperparameters=parts, **WORLD)
    np.testing.assert_array_equal(one.actions, other.actions)
    assert type(one.states[-1].belief) is type(other.states[-1].belief)


def test_hyperparameters_given_override_those_of_the_preset() -> None:
    env = gym.make("ata_gym/TaskAllocation-v0", pool=POOL, budget=7)
    policy: Any = ata_policies.make("restarting-beta:beta=1.25", env, effective_tasks=None)
    assert (policy.rule.beta, policy.memory.effective_tasks, policy.estimate.weight) == (1.25, None, 5.0)
    plain: Any = ata_policies.make("restarting-beta", env, memory="everything")
    assert not plain.availability


@pytest.mark.parametrize("estimate", ["ata", "ata-empirical"])
def test_what_suits_an_estimate_better_can_still_be_overridden(estimate: str) -> None:
    memory: Any = made("restarting", estimate, "proxy").memory
    assert (memory.restart, memory.effective_tasks) == ("everybody", None)
    memory = made("restarting", estimate, "proxy", restart="many", effective_tasks=80.0).memory
    assert (memory.restart, memory.effective_tasks) == ("many", 80.0)


def test_who_is_away_is_watched_where_it_is_said(play: Any) -> None:
    """By default with the memory that restarts; any other memory can do so too."""
    assert [made(memory, "thompson", "proxy").availability for memory in MEMORIES] == [
        memory == "restarting" for memory in MEMORIES
    ]
    with_it, without = (
        play(made("everything", "thompson", "proxy", availability=flag), 200, 4, **WORLD).actions
        for flag in (True, False)
    )
    assert (with_it != without).any()
