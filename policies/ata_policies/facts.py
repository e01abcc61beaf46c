"""What lists and cards say of a policy, and of its parts; and what a policy is given for what it says that it knows."""

import inspect
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import ClassVar

_OF_ORACLES = ("the means", "the distributions")  # what an oracle must know begins with one of these
_OF_BOUNDS = "a bound on"  # what ATA must know begins so
_EACH_ROUND = ", of each round"

DECLARED_BY: Mapping[str, str] = MappingProxyType(
    {
        "pool": 'knows = "the distributions", or "the means"',
        "drawn": 'knows = "the distributions", or "the means"',
        "published": 'knows = "a bound on the psi1 norms"',
        "norms": 'knows = "a bound on the psi1 norms"',
        "conditions": 'knows = "the distributions, of each round", or "the means, of each round"',
    }
)
"""Privileged information by name, and what a policy says that is given it: pieces of ``Setting``, and ``conditions``,
those of the coming round."""


class UndeclaredError(ValueError):
    """A policy reads privileged information of which it does not say that it must know it."""


def undeclared(policy: str, knows: str, what: str, piece: str) -> str:
    """The sentence on a policy that says this, and reads ``what``, a piece of ``DECLARED_BY``."""
    return (
        f'{policy} says knows = "{knows}", so {what} is not given to it: a policy that must know it beforehand says '
        f"{DECLARED_BY[piece]}"
    )


def granted(knows: str) -> frozenset[str]:
    """The keys of ``DECLARED_BY`` that are given to a policy that says that it must know this beforehand.

    >>> sorted(granted("a bound on the psi1 norms")), sorted(granted("nothing; or the shape"))
    (['norms', 'published'], [])
    >>> sorted(granted("the distributions, of each round"))
    ['conditions', 'drawn', 'norms', 'pool', 'published']
    """
    found: set[str] = set()
    for phrase in knows.split("; "):
        if phrase.startswith(_OF_ORACLES):
            found |= {"pool", "drawn", "published", "norms"}
            found |= {"conditions"} if phrase.endswith(_EACH_ROUND) else set()
        elif phrase.startswith(_OF_BOUNDS):
            found |= {"published", "norms"}
    return frozenset(found)


def is_oracle(knows: str) -> bool:
    """Whether a policy that says this knows what others must learn.

    >>> is_oracle("the means, of each round"), is_oracle("a bound on the psi1 norms"), is_oracle("nothing")
    (True, False, False)
    """
    return "pool" in granted(knows)


class Described:
    """A class that says of itself where it comes from, and what it knows and assumes."""

    source: ClassVar[str] = ""  # where it comes from
    constants: ClassVar[str] = ""  # the constants of its rule
    knows: ClassVar[str] = "nothing"
    """What it must know before it starts, beside n and B; what it is given for that says ``granted``."""
    assumes: ClassVar[str] = "nothing"  # what its rule or guarantee assumes of the task times
    time_unit: ClassVar[str] = ""
    """The unit of the constants and hyperparameters of its rule that are times, such as "seconds".

    Empty: none of them is a time, so that it decides alike whatever the unit of the times that it observes.
    """
    nonstationary: ClassVar[bool] = False  # whether it is made for workers that change

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return cls.documentation().partition("\n")[0]

    @classmethod
    def documentation(cls) -> str:
        """The class's docstring, without indentation."""
        return inspect.getdoc(cls) or ""


def together(parts: Iterable[type[Described]], fact: str) -> str:
    """What several parts say of a fact, each thing once; what says nothing is left out unless all say that."""
    said = [str(getattr(part, fact)) for part in parts]
    return "; ".join(dict.fromkeys(one for one in said if one not in ("", "none", "nothing"))) or said[0]
