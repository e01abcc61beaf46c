"""What is wrong with a policy: it is played, and each fault gets a sentence that says what would be right."""

from __future__ import annotations

import copy
import inspect
import warnings
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import gymnasium as gym
import numpy as np

from ata_gym.checks import whole_number
from ata_gym.pools import exponential, shifted_exponential
from ata_policies.policy import AllocationPolicy, DispatchPolicy, Policy, Setting
from ata_policies.registry import check_env_id, env_ids, load, parse
from ata_policies.trial import Make, Trial

_WORLDS = (
    Setting(5, 7, shifted_exponential(np.arange(1.0, 6.0), np.arange(1.0, 6.0)), price=0.1),
    Setting(12, 3, exponential(np.arange(1.0, 13.0))),
    Setting(1, 4, exponential([2.0])),
)
"""Where a policy is checked by default: thoroughly in the first, for legal actions in the others."""


class PolicyError(ValueError):
    """A policy has faults; ``faults`` holds a sentence for each."""

    def __init__(self, policy: str, faults: tuple[str, ...]) -> None:
        self.faults = faults
        super().__init__("\n- ".join([f"{policy} does not keep the contract of a policy:", *faults]))


class Report(NamedTuple):
    """What ``examine`` found, a sentence each."""

    faults: tuple[str, ...]
    """What must be mended."""
    advice: tuple[str, ...]
    """What those who choose among policies would miss."""


def check_policy(
    policy: str | type[Policy] | Policy,
    env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | None = None,
    rounds: int = 40,
    **hyperparameters: Any,
) -> None:
    """Play a policy, warn of what is only advice, and raise one error that lists all its faults.

    So do the ``check_env`` of Gymnasium and Stable-Baselines3, but they stop at the first fault.

    Parameters
    ----------
    policy
        A class, a name (see ``load``), or a policy that is made already: copies of it get other seeds.
    env
        Where to play; it is not touched, others like it are made. By default small worlds of 5, 12 and 1 workers.
    rounds
        How many rounds are played, in two episodes; at least 4.
    hyperparameters
        Those of the policy's class.

    Raises
    ------
    PolicyError
        If the policy has faults; it is a ValueError.
    ValueError
        If there is no such policy, or it plays another env than this.

    Examples
    --------
    >>> from ata_gym import allocate
    >>> class Spendthrift(AllocationPolicy):
    ...     '''Even, with one task more than is needed.'''
    ...     source, constants, assumes = "ours", "none", "nothing"
    ...     def allocate(self, state):
    ...         return allocate(state.belief.totals, self.setting.budget + 1)
    >>> check_policy(Spendthrift)
    Traceback (most recent call last):
        ...
    ata_policies.checking.PolicyError: Spendthrift does not keep the contract of a policy:
    - its action is illegal in round 1: the tasks of row 0 must sum to the budget of 7, not to 8
    """
    report = examine(policy, env, rounds, **hyperparameters)
    for sentence in report.advice:
        warnings.warn(sentence, stacklevel=2)
    if report.faults:
        raise PolicyError(policy if isinstance(policy, str) else _kind(policy).__name__, report.faults)


def examine(
    policy: str | type[Policy] | Policy,
    env: gym.Env[Any, Any] | gym.vector.VectorEnv[Any, Any, Any] | None = None,
    rounds: int = 40,
    **hyperparameters: Any,
) -> Report:
    """Check a policy as ``check_policy`` does, but give what was found."""
    whole_number("rounds", rounds, 4)
    given: Any = policy
    if isinstance(policy, str):
        name, named = parse(policy)
        given, hyperparameters = load(name), {**named, **hyperparameters}
    kind = _kind(given)
    if not issubclass(kind, Policy):
        return Report(("it must be a subclass of AllocationPolicy or DispatchPolicy",), ())
    advice = tuple(_advice(kind))
    if inspect.isabstract(kind):
        return Report((f"it must define {' and '.join(sorted(kind.__abstractmethods__))}",), advice)
    if kind.env_id not in env_ids():
        return Report((f"its env_id must be {' or '.join(env_ids())}, not {kind.env_id!r}",), advice)
    if env is not None:
        check_env_id(kind, env)
        worlds: tuple[Setting, ...] = (Setting.of(env),)
    else:
        worlds = _WORLDS if given is kind else (given.setting,)
    make = _maker(given, hyperparameters)
    for place, world in enumerate(worlds):
        faults = Trial(make, kind, world, rounds).run(thorough=place == 0)
        if faults:  # the next world would show the same
            return Report(faults, advice)
    return Report((), advice)


def _kind(policy: Any) -> type[Any]:
    return policy if isinstance(policy, type) else type(policy)


def _maker(policy: Any, hyperparameters: Mapping[str, Any]) -> Make:
    """How to make the policy again for another setting and seed."""

    def make(setting: Setting, seed: int) -> Policy:
        made: Policy = policy(setting, seed=seed, **hyperparameters)
        return made

    def again(setting: Setting, seed: int) -> Policy:
        twin: Policy = copy.copy(policy)
        twin.setting, twin.seed = setting, seed
        return twin

    if isinstance(policy, type):
        return make
    if hyperparameters:
        raise ValueError("a policy that is made already has its hyperparameters; give its class or name with others")
    return again


def _advice(kind: type[Policy]) -> Iterator[str]:
    """What ``ata-gym policies`` would lack; that ``knows`` is true is checked by playing."""
    if kind.__doc__ is None:
        yield "give the class a docstring; its first line says what the policy does"
    elif not kind.summary().endswith("."):
        yield "end the first line of the docstring with a full stop; it stands for the policy in lists"
    if not kind.source:
        yield 'set source = "...": where the policy comes from, or "ours"'
    if not kind.constants:
        yield 'set constants = "...": the constants of its rule, or "none"'
    bases = {AllocationPolicy, DispatchPolicy, *Policy.__mro__}
    if not any("assumes" in vars(base) for base in kind.__mro__ if base not in bases):
        yield 'set assumes = "...": what it assumes of the task times, or "nothing"'
