"""Policies as compositions: every memory with every estimate and rule, and what is refused."""

from __future__ import annotations

import itertools
import re
from typing import Any

import gymnasium as gym
import numpy as np
import pytest

import ata_policies
from ata_gym.changes import Spot
from ata_gym.pools import shifted_exponential
from ata_policies import Setting, Totals
from ata_policies.allocation.composition import ESTIMATES, MEMORIES, RULES, ComposedPolicy, names_of

MEANS = np.arange(1.0, 6.0)


def world(unit: float = 1.0) -> dict[str, Any]:
    pool = shifted_exponential(unit * MEANS, unit * MEANS)
    return {"pool": pool, "budget": 7, "changes": [Spot(leaves=0.05, returns=0.3, deadline=unit * 30.0)]}


WORLD = world()
POOL = WORLD["pool"]
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


def made(memory: str, estimate: str, rule: str, pool: Any = POOL, **hyperparameters: Any) -> ComposedPolicy:
    setting = Setting(n=5, budget=7, pool=pool)
    return ComposedPolicy(setting, memory=memory, estimate=estimate, rule=rule, **hyperparameters)


PAIRWISE = [
    (memory, estimate, list(RULES)[(i + j) % len(RULES)])
    for (i, memory), (j, estimate) in itertools.product(enumerate(MEMORIES), enumerate(ESTIMATES))
]
"""Every two parts that there are together."""


@pytest.mark.parametrize("parts", [parts for parts in PAIRWISE if refusal(*parts) is None], ids="-".join)
def test_a_combination_plays(play: Any, parts: tuple[str, str, str]) -> None:
    """20 legal rounds, of which a row is what it is alone; the unit of time does not matter."""

    def built(unit: float = 1.0, seed: int = 0) -> ComposedPolicy:
        prior = Totals(np.full((1, 5), 2.0), np.full((1, 5), 2.0 * unit))
        more: dict[str, Any] = {"prior": {"prior": prior}, "window": {"window": 12}}
        return made(*parts, world(unit)["pool"], seed=seed, **more.get(parts[0], {}))

    run, unit = play(built(), 20, 3, **WORLD), 2.0**40
    np.testing.assert_array_equal(play(built(unit), 20, 3, **world(unit)).actions, run.actions)
    policy, state = built(seed=2), None
    for expected, observation in zip(run.actions[:, 2], run.seen, strict=True):
        action, state = policy.predict({name: field[2] for name, field in observation.items()}, state)
        np.testing.assert_array_equal(action, expected)


def test_parts_that_do_not_fit_are_refused_and_others_have_no_hyperparameter_of_the_same_name() -> None:
    for memory, estimate, rule in ALL:
        if sentence := refusal(memory, estimate, rule):
            with pytest.raises(ValueError, match=re.escape(sentence)):
                made(memory, estimate, rule)
        else:
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
    for estimate in ("ata", "ata-empirical"):  # what suits them better can be overridden as well
        memory: Any = made("restarting", estimate, "proxy").memory
        assert (memory.restart, memory.effective_tasks) == ("everybody", None)
        memory = made("restarting", estimate, "proxy", restart="many", effective_tasks=80.0).memory
        assert (memory.restart, memory.effective_tasks) == ("many", 80.0)


def test_who_is_away_is_watched_by_default_with_the_memory_that_restarts() -> None:
    assert [name for name in MEMORIES if made(name, "thompson", "proxy").availability] == ["restarting"]
    for flag in (True, False):
        assert made("everything", "thompson", "proxy", availability=flag).availability == flag
