"""What lists and cards say of a policy and of its parts.

And which privileged information a policy is given for what it says that it knows.
"""

import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar

# what an oracle must know begins with one of these
_ORACLE_PREFIXES = ("the means", "the distributions")
_BOUND_PREFIX = "a bound on"  # what ATA must know begins so
_EACH_ROUND_SUFFIX = (
    ", of each round"  # and ends so for an oracle that is told each round's conditions
)

DECLARED_BY: Mapping[str, str] = MappingProxyType(
    {
        "pool": 'knows = "the distributions", or "the means"',
        "drawn": 'knows = "the distributions", or "the means"',
        "published": 'knows = "a bound on the psi1 norms"',
        "norms": 'knows = "a bound on the psi1 norms"',
        "conditions": 'knows = "the distributions, of each round", or "the means, of each round"',
    },
)
"""Privileged information by name, and what a policy must say to be given it.

The names are pieces of ``Setting``, and ``conditions``, the conditions of the coming round.
"""


class UndeclaredError(ValueError):
    """A policy reads privileged information of which it does not say that it must know it."""


def undeclared(policy: str, knows: str, information: str, piece: str) -> str:
    """Return the sentence on a policy that reads what it is not given.

    Args:
        policy: Its name.
        knows: What it says that it knows.
        information: What it reads, in words.
        piece: The same as a key of ``DECLARED_BY``.
    """
    return (
        f'{policy} says knows = "{knows}", so {information} is not given to it: a policy that must'
        f" know it beforehand says {DECLARED_BY[piece]}"
    )


def granted(knows: str) -> frozenset[str]:
    """Return the keys of ``DECLARED_BY`` that are given to a policy that says this.

    Example:
        >>> sorted(granted("a bound on the psi1 norms")), sorted(granted("nothing; or the shape"))
        (['norms', 'published'], [])
        >>> sorted(granted("the distributions, of each round"))
        ['conditions', 'drawn', 'norms', 'pool', 'published']
    """
    keys: set[str] = set()
    for phrase in knows.split("; "):
        if phrase.startswith(_ORACLE_PREFIXES):
            keys |= {"pool", "drawn", "published", "norms"}
            if phrase.endswith(_EACH_ROUND_SUFFIX):
                keys |= {"conditions"}
        elif phrase.startswith(_BOUND_PREFIX):
            keys |= {"published", "norms"}
    return frozenset(keys)


def is_oracle(knows: str) -> bool:
    """Return whether a policy that says this knows what others must learn.

    Example:
        >>> is_oracle("the means, of each round"), is_oracle("a bound on the psi1 norms")
        (True, False)
        >>> is_oracle("nothing")
        False
    """
    return "pool" in granted(knows)


class Described:
    """A class that says of itself where it comes from, and what it knows and assumes."""

    source: ClassVar[str] = ""
    """Where it comes from."""
    constants: ClassVar[str] = ""
    """The constants of its rule."""
    knows: ClassVar[str] = "nothing"
    """What it must know before it starts, beside n and B.

    ``granted`` says what it is given for that.
    """
    assumes: ClassVar[str] = "nothing"
    """What its rule or guarantee assumes of the task times."""
    time_unit: ClassVar[str] = ""
    """The unit of constants and hyperparameters that are times, such as "seconds".

    Empty: none of them is a time, so that it decides alike whatever the unit of the times that it
    observes.
    """
    nonstationary: ClassVar[bool] = False
    """Whether it is made for workers that change."""

    @classmethod
    def summary(cls) -> str:
        """Return the first line of the class's docstring."""
        return cls.documentation().partition("\n")[0]

    @classmethod
    def documentation(cls) -> str:
        """Return the class's docstring, without indentation."""
        return inspect.getdoc(cls) or ""


def joined_facts(parts: Iterable[type[Described]], fact: str) -> str:
    """Return what several parts say of a fact, each thing once.

    What says nothing is left out, unless all say nothing.

    Args:
        parts: At least one class.
        fact: The name of an attribute, such as "knows".
    """
    statements = [str(getattr(part, fact)) for part in parts]
    telling = dict.fromkeys(
        statement for statement in statements if statement not in ("", "none", "nothing")
    )
    return "; ".join(telling) or statements[0]
