"""The check of a policy.

It is played, and each fault gets a sentence that says what would be right.
"""

import inspect
import warnings
from collections.abc import Iterator
from functools import cache, partial
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.changes import Switch
from ata_gym.pools import concatenate, exponential, gamma, shifted_exponential, trace
from ata_gym.scenarios import Scenario
from ata_gym.utils.validation import whole_number
from ata_policies.checking.another_process import same_in_another_process
from ata_policies.checking.contract import ContractCheck
from ata_policies.checking.episodes import lasts, prefers_the_fast
from ata_policies.checking.invariance import draws_anew, same_in_any_unit
from ata_policies.facts import joined_facts
from ata_policies.policy import AllocationPolicy, DispatchPolicy, Policy
from ata_policies.presets import Preset
from ata_policies.registry import PolicyMaker, check_plays, env_ids, id_of, load, parse


class PolicyError(ValueError):
    """A policy has faults; ``faults`` holds a sentence for each."""

    def __init__(self, policy: str, faults: tuple[str, ...]) -> None:
        self.faults = faults
        lines = [f"{policy} does not keep the contract of a policy:", *faults]
        super().__init__("\n- ".join(lines))


class CheckResult(NamedTuple):
    """The findings of ``examine``, a sentence each."""

    faults: tuple[str, ...]
    """Breaches of the contract of a policy."""
    advice: tuple[str, ...]
    """Descriptions that ``ata-gym policies`` would lack, and what else looks like a mistake."""


def check_policy(
    policy: str | PolicyMaker,
    env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | None = None,
    rounds: int = 40,
    **hyperparameters: Any,
) -> None:
    """Play a policy, and raise one error that lists all its faults.

    What is only advice is a warning. The function checks that actions are legal, that a row of a
    batch does not depend on the other rows, that all memory is in the state, that episodes begin
    anew, that durations of 0 are accepted, that foreign observations are refused, that draws are
    others in each round, that another process has the same actions, and that the unit of time makes
    no difference, unless the policy names one. A run of 25 times as many rounds finds what goes
    wrong later. It is advice that a policy should not need more than even shares where half of the
    workers are ten times as fast.

    Args:
        policy: A class, or a name (see ``load``).
        env: An env like the ones in which it is played; by default small scenarios of 5, 12 and 1
            workers.
        rounds: The number of rounds, in two episodes, at least 4.
        hyperparameters: Arguments of the policy's class.

    Raises:
        PolicyError: If the policy has faults.
        ValueError: If there is no such policy, or if it plays another env.

    Example:
        >>> from ata_gym import allocate
        >>> class Spendthrift(AllocationPolicy):
        ...     '''Even, with one task more than is needed.'''
        ...     source, constants, assumes = "ours", "none", "nothing"
        ...     def allocate(self, state):
        ...         return allocate(state.belief.totals, self.setting.budget + 1)
        >>> check_policy(Spendthrift)
        Traceback (most recent call last):
            ...
        ata_policies.checking.check.PolicyError: Spendthrift does not keep the contract of a policy:
        - its action is illegal in round 1: the tasks of row 0 must sum to the budget of 7, not to 8
    """
    result = examine(policy, env, rounds, **hyperparameters)
    for sentence in result.advice:
        warnings.warn(sentence, stacklevel=2)
    if result.faults:
        raise PolicyError(str(getattr(policy, "__name__", policy)), result.faults)


def examine(
    policy: str | PolicyMaker,
    env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | None = None,
    rounds: int = 40,
    **hyperparameters: Any,
) -> CheckResult:
    """Check a policy as ``check_policy`` does, and return its faults and advice.

    Args:
        policy: A class, or a name.
        env: An env like the ones in which it is played.
        rounds: The number of rounds, at least 4.
        hyperparameters: Arguments of the policy's class.

    Raises:
        ValueError: If there is no such policy, or if it plays another env.
    """
    whole_number("rounds", rounds, 4)
    kind: Any = policy
    if isinstance(policy, str):
        name, name_hyperparameters = parse(policy)
        kind = load(name)
        hyperparameters = {**name_hyperparameters, **hyperparameters}
    if not isinstance(kind, Preset):
        if not (isinstance(kind, type) and issubclass(kind, Policy)):
            return CheckResult(("it must be a subclass of AllocationPolicy or DispatchPolicy",), ())
        if inspect.isabstract(kind):
            return CheckResult(
                (f"it must define {' and '.join(sorted(kind.__abstractmethods__))}",),
                (*_advice(kind),),
            )
    advice = tuple(_advice(kind))
    if kind.env_id not in env_ids():
        return CheckResult(
            (f"its env_id must be {' or '.join(env_ids())}, not {kind.env_id!r}",),
            advice,
        )
    scenarios = _scenarios()
    if kind.only_size is not None:
        n, budget = kind.only_size
        scenarios = (Scenario(exponential(np.arange(1.0, n + 1)), budget, price=0.1),)
    if env is not None:
        check_plays(kind, id_of(env))
        bare: Any = env.unwrapped
        scenarios = (bare.scenario,)
    make = partial(kind, **hyperparameters)
    further_checks = [draws_anew, lasts, prefers_the_fast]
    if not joined_facts(kind.parts_for(**hyperparameters), "time_unit"):
        further_checks.append(same_in_any_unit)
    further_checks.append(same_in_another_process)
    checks = [ContractCheck(make, kind, scenario, rounds) for scenario in scenarios]
    faults = checks[0].run(*further_checks)
    for check in checks[1:]:
        # the next scenario would show the same faults
        if faults:
            break
        faults = check.run(thorough=False)
    return CheckResult(faults, (*advice, *checks[0].advice))


@cache
def _scenarios() -> tuple[Scenario, ...]:
    """Where a policy is checked by default.

    Thoroughly in the first scenario, for legal actions in the others. They are made at the first
    check: making a pool takes a fifth of the time in which the zoo is imported.
    """
    pool = concatenate(
        [
            gamma([0.4, 4.0], [4.0, 0.25]),
            trace([[1.0, 2.0, 4.0]]),
            shifted_exponential([2.0, 5.0], [2.0, 5.0]),
        ],
    )
    return (
        Scenario(pool, 7, changes=(Switch(every=7),), price=0.1),
        Scenario(exponential(np.arange(1.0, 13.0)), 3),
        Scenario(exponential([2.0]), 4),
    )


def _advice(kind: PolicyMaker) -> Iterator[str]:
    """Yield a sentence for each description that the class lacks."""
    if not kind.summary() or kind.__doc__ is None:
        yield "give the class a docstring; its first line says what the policy does"
    elif not kind.summary().endswith("."):
        yield (
            "end the first line of the docstring with a full stop; it stands for the policy in"
            " lists"
        )
    if not kind.source:
        yield 'set source = "...": where the policy comes from, or "ours"'
    if not kind.constants:
        yield 'set constants = "...": the constants of its rule, or "none"'
    bases = {AllocationPolicy, DispatchPolicy, *Policy.__mro__}
    if isinstance(kind, type) and not any(
        "assumes" in vars(base) for base in kind.__mro__ if base not in bases
    ):
        yield 'set assumes = "...": what it assumes of the task times, or "nothing"'
