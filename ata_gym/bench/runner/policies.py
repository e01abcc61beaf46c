"""Policies as users give them: names, classes and objects.

The source of a class or an object that other processes cannot import is kept with its results.
"""

import ast
import inspect
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ata_gym.utils.extras import load_object
from ata_gym.utils.validation import unknown
from ata_policies.policy import Policy
from ata_policies.registry import RegisteredPolicy, full_name, parse
from ata_policies.setting import Setting

PolicyLike = str | type[Policy] | Policy
"""A policy: its name, its class, or a policy that is made already."""

Policies = PolicyLike | Sequence[PolicyLike] | Mapping[str, PolicyLike]
"""One policy, several ones, or policies by names of the user's own."""


def by_name(policies: Policies) -> dict[str, RegisteredPolicy | None]:
    """The policies by the names under which they play.

    A text may hold several names, separated by commas; "default" stands for the default of
    TaskAllocation-v0. The name of a class that can be imported is ``module:Class``; other classes,
    and objects, have the name of the class, or the key of a mapping.

    Returns:
        For each name the policy; None for one that every process finds by its name.

    Raises:
        ValueError: If there is no policy, if two have the same name, or if something is given that
            is no policy.

    Example:
        >>> by_name("ata, default")
        {'ata': None, 'distribution-learner': None}
    """
    if isinstance(policies, Mapping):
        pairs: list[tuple[str, RegisteredPolicy | None]] = [
            (name, _registered(policy)) for name, policy in policies.items()
        ]
    else:
        policy_list: Iterable[Any]
        if isinstance(policies, str | type | Policy):
            policy_list = [policies]
        else:
            policy_list = policies
        pairs = [pair for policy in policy_list for pair in _named(policy)]
    named = dict(pairs)
    # a name that is given again as a name is the same policy, and an object is another one
    ambiguous = {name for name, policy in pairs if policy is not None and named[name] is not policy}
    if ambiguous:
        raise ValueError(
            f"several policies are named {', '.join(sorted(ambiguous))}: give each a name of its"
            ' own, as in {"mine": first, "other": second}',
        )
    if not named:
        raise ValueError("name at least one policy")
    return named


def name_among(
    policy: PolicyLike, played: Sequence[str], policies: Mapping[str, RegisteredPolicy | None]
) -> str:
    """The name under which a policy was played.

    Args:
        policy: The policy: that name with or without its module, its module and class, or the class
            or object itself.
        played: The names of all policies that were played.
        policies: The policies as ``by_name`` gave them.

    Raises:
        ValueError: If no policy was played that is meant, or several were.

    Example:
        >>> name_among("Mine", ["uta", "my_policies:Mine"], {})
        'my_policies:Mine'
        >>> name_among("default", ["distribution-learner"], {})
        'distribution-learner'
    """
    # a way of what-if may be named by a worker, such as "without rank=3", which is no policy
    if isinstance(policy, str) and policy in played:
        return policy
    if isinstance(policy, str):
        label = policy
        full = full_name(policy)
        names = [name for name in played if name == full]
        if not names:
            names = [
                name
                for name in played
                if full in (_without_module(name), _reference(name, policies))
            ]
    else:
        label = getattr(policy, "__name__", type(policy).__name__)
        bases = {name: policies.get(_base_name(name)) for name in played}
        names = [
            name
            for name, registered in bases.items()
            if registered is not None and registered.original is policy
        ]
        if not names:
            names = [name for name in played if _is_class(policy, _base_name(name))]
    if not names:
        raise unknown("finished policy", label, played)
    if len(names) > 1:
        raise ValueError(f"{label} was played as {' and as '.join(names)}: say which")
    return names[0]


def _base_name(name: str) -> str:
    """The name of a policy without hyperparameters; a way of what-if may have none of the form."""
    try:
        return parse(name)[0]
    except ValueError:
        return name


def _without_module(name: str) -> str:
    if ":" in _base_name(name):
        return name.partition(":")[2]
    return name


def _reference(name: str, policies: Mapping[str, RegisteredPolicy | None]) -> str:
    """The module and the class of a policy that was given as such, and its hyperparameters."""
    base = _base_name(name)
    registered = policies.get(base)
    if registered is None or registered.original is None:
        return name
    if isinstance(registered.original, type):
        kind = registered.original
    else:
        kind = type(registered.original)
    return f"{kind.__module__}:{kind.__qualname__}{name.removeprefix(base)}"


def _is_class(policy: Any, reference: str) -> bool:
    return isinstance(policy, type) and reference == f"{policy.__module__}:{policy.__qualname__}"


def _named(policy: PolicyLike) -> list[tuple[str, RegisteredPolicy | None]]:
    """The name of a policy, or the names in a text, each with the policy as ``by_name`` says."""
    if isinstance(policy, str):
        return [(full_name(name.strip()), None) for name in policy.split(",") if name.strip()]
    if isinstance(policy, type):
        kind = policy
    else:
        kind = type(policy)
    # a class that has a file is found by its module and name in every process
    if kind is policy and kind.__module__ != "__main__":
        reference = f"{kind.__module__}:{kind.__qualname__}"
        try:
            if load_object("policy", reference) is policy and inspect.getsourcefile(policy):
                return [(reference, None)]
        except (ValueError, TypeError, OSError):
            pass
    return [(kind.__name__, _registered(policy))]


def _registered(policy: PolicyLike) -> RegisteredPolicy:
    """A policy that has a name in this process only.

    Raises:
        ValueError: If it is no class or object of a policy.
    """
    if isinstance(policy, type) and issubclass(policy, Policy):
        return RegisteredPolicy(policy, source_of(policy), policy)
    if isinstance(policy, Policy):
        return RegisteredPolicy(_maker(policy), _source_of_object(policy), policy)
    raise ValueError(
        "a policy is a name, or a class or an object of AllocationPolicy or DispatchPolicy, not"
        f" {policy!r}; in a mapping it is a class or an object",
    )


def _maker(policy: Policy) -> type[Policy]:
    """A class of the same name, whose only object is the policy that is made already.

    What makes policies calls a class with a setting. Here it gets that policy, if it was made for
    the same setting, with its own seed.
    """

    def make(cls: type[Policy], setting: Setting, *, seed: int = 0) -> Policy:
        del cls, seed
        own_setting = policy.setting
        if (own_setting.n, own_setting.budget, own_setting.price) != (
            setting.n,
            setting.budget,
            setting.price,
        ):
            raise ValueError(
                f"{type(policy).__name__} was made for {own_setting.n} workers, a budget of"
                f" {own_setting.budget} and a price of {own_setting.price:g}, not for {setting.n},"
                f" {setting.budget} and {setting.price:g}: give its class",
            )
        return policy

    kind = type(policy)
    return type(
        kind.__name__,
        (kind,),
        {"__new__": make, "__doc__": kind.__doc__, "__module__": kind.__module__},
    )


def _source_of_object(policy: Policy) -> str | None:
    """The source of a policy's class, and its hyperparameters; None where one cannot be had."""
    source = source_of(type(policy))
    try:
        public = {name: value for name, value in vars(policy).items() if not name.startswith("_")}
        return source and f"{source}\n# {pickle.dumps(sorted(public.items())).hex()}\n"
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def source_of(kind: type) -> str | None:
    """The source of a class and of its base classes in the same module.

    Returns:
        None where the source of one of them cannot be had.

    Example:
        >>> source_of(Setting).splitlines()[0]
        'class Setting(NamedTuple):'
    """
    parts = [_source(base) for base in kind.__mro__ if base.__module__ == kind.__module__]
    available = [part for part in parts if part is not None]
    if len(available) == len(parts):
        return "\n".join(available)
    return None


def _source(kind: type) -> str | None:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):
        pass
    # in a notebook a class does not know its cell, but a function in the class does
    for function in vars(kind).values():
        try:
            lines, _ = inspect.findsource(inspect.unwrap(function))
            cell = "".join(lines)
            classes = [node for node in ast.walk(ast.parse(cell)) if isinstance(node, ast.ClassDef)]
        except (OSError, TypeError, SyntaxError):
            continue
        for node in classes:
            if node.name == kind.__name__:
                return ast.get_source_segment(cell, node)
    return None
