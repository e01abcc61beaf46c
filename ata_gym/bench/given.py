"""Policies as users give them: names, classes and objects; and the source of those that have no file."""

import ast
import inspect
import pickle
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ata_gym.utils.extras import load_object
from ata_gym.utils.validation import unknown
from ata_policies.policy import Policy
from ata_policies.registry import Given, full_name, parse
from ata_policies.setting import Setting

GivenPolicy = str | type[Policy] | Policy  # a name, a class, or a policy that is made already
Policies = GivenPolicy | Sequence[GivenPolicy] | Mapping[str, GivenPolicy]


def by_name(policies: Policies) -> dict[str, Given | None]:
    """The policies by the names under which they play; None for one that every process finds by its name.

    A text may hold several names, separated by commas; "default" is that of TaskAllocation-v0. The name of a class that
    can be imported is ``module:Class``; other classes, and objects, have the name of the class, or the key of a
    mapping. ValueError if there is none, two have the same name, or something else is given.

    >>> by_name("ata, default")
    {'ata': None, 'distribution-learner': None}
    """
    if isinstance(policies, Mapping):
        found: list[tuple[str, Given | None]] = [(name, _given(policy)) for name, policy in policies.items()]
    else:
        each: Iterable[Any] = [policies] if isinstance(policies, str | type | Policy) else policies
        found = [pair for policy in each for pair in _named(policy)]
    named = dict(found)
    twice = {name for name, policy in found if policy is not None and named[name] is not policy}
    if twice:
        raise ValueError(
            f"several policies are named {', '.join(sorted(twice))}: give each a name of its own, as in "
            '{"mine": first, "other": second}'
        )
    if not named:
        raise ValueError("name at least one policy")
    return named


def name_among(policy: GivenPolicy, played: Sequence[str], own: Mapping[str, Given | None]) -> str:
    """The name under which a policy was played, ``own`` being what ``by_name`` gave.

    It may be named by that name, without its module, by its module and class, or by the class or object itself.
    ValueError if no policy was played that is meant, or several were.

    >>> name_among("Mine", ["uta", "my_policies:Mine"], {}), name_among("default", ["distribution-learner"], {})
    ('my_policies:Mine', 'distribution-learner')
    """
    if isinstance(policy, str):
        wanted = full_name(policy)
        found = [name for name in played if name == wanted] or [
            name for name in played if wanted in (_without_module(name), _reference(name, own))
        ]
    else:
        bases = {name: own.get(parse(name)[0]) for name in played}
        found = [name for name, one in bases.items() if one is not None and one.original is policy]
        found = found or [name for name in played if _is_class(policy, parse(name)[0])]
    called = policy if isinstance(policy, str) else getattr(policy, "__name__", type(policy).__name__)
    if not found:
        raise unknown("finished policy", called, played)
    if len(found) > 1:
        raise ValueError(f"{called} was played as {' and as '.join(found)}: say which")
    return found[0]


def _without_module(name: str) -> str:
    return name.partition(":")[2] if ":" in parse(name)[0] else name


def _reference(name: str, own: Mapping[str, Given | None]) -> str:
    """The module and the class of a policy that was given as an object or a class, and its hyperparameters."""
    base, _ = parse(name)
    one = own.get(base)
    if one is None or one.original is None:
        return name
    kind = one.original if isinstance(one.original, type) else type(one.original)
    return f"{kind.__module__}:{kind.__qualname__}{name.removeprefix(base)}"


def _is_class(policy: Any, reference: str) -> bool:
    return isinstance(policy, type) and reference == f"{policy.__module__}:{policy.__qualname__}"


def _named(policy: GivenPolicy) -> list[tuple[str, Given | None]]:
    if isinstance(policy, str):
        return [(full_name(name.strip()), None) for name in policy.split(",") if name.strip()]
    kind = policy if isinstance(policy, type) else type(policy)
    if kind is policy and kind.__module__ != "__main__":
        reference = f"{kind.__module__}:{kind.__qualname__}"
        try:
            if load_object("policy", reference) is policy and inspect.getsourcefile(policy):
                return [(reference, None)]
        except (ValueError, TypeError, OSError):
            pass
    return [(kind.__name__, _given(policy))]


def _given(policy: GivenPolicy) -> Given:  # a policy that has a name in this process only
    if isinstance(policy, type) and issubclass(policy, Policy):
        return Given(policy, source_of(policy), policy)
    if isinstance(policy, Policy):
        return Given(_maker(policy), _source_of_object(policy), policy)
    raise ValueError(
        f"a policy is a name, or a class or an object of AllocationPolicy or DispatchPolicy, not {policy!r}; in a "
        "mapping it is a class or an object"
    )


def _maker(policy: Policy) -> type[Policy]:
    def make(cls: type[Policy], setting: Setting, *, seed: int = 0) -> Policy:
        del cls, seed
        mine = policy.setting
        if (mine.n, mine.budget, mine.price) != (setting.n, setting.budget, setting.price):
            raise ValueError(
                f"{type(policy).__name__} was made for {mine.n} workers, a budget of {mine.budget} and a price of "
                f"{mine.price:g}, not for {setting.n}, {setting.budget} and {setting.price:g}: give its class"
            )
        return policy

    kind = type(policy)
    return type(kind.__name__, (kind,), {"__new__": make, "__doc__": kind.__doc__, "__module__": kind.__module__})


def _source_of_object(policy: Policy) -> str | None:
    """The source of its class, and its hyperparameters; None where one of them cannot be had."""
    source = source_of(type(policy))
    try:
        public = {name: value for name, value in vars(policy).items() if not name.startswith("_")}
        return source and f"{source}\n# {pickle.dumps(sorted(public.items())).hex()}\n"
    except (pickle.PicklingError, AttributeError, TypeError):
        return None


def source_of(kind: type) -> str | None:
    """The source of a class, and of the classes of its own module that it is made of; None where there is none.

    >>> source_of(Setting).splitlines()[0]
    'class Setting(NamedTuple):'
    """
    parts = [_source(one) for one in kind.__mro__ if one.__module__ == kind.__module__]
    known = [part for part in parts if part is not None]
    return "\n".join(known) if len(known) == len(parts) else None


def _source(kind: type) -> str | None:
    try:
        return inspect.getsource(kind)
    except (OSError, TypeError):  # as in a notebook, where a function knows its cell, and a class does not
        pass
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
