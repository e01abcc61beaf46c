"""Names that a shell completes after the options and arguments that take them.

A function gets what is typed so far, and returns the whole words that it may become. It imports the names when the
shell asks for them, and nothing heavier than the policies and the scenarios themselves.
"""

from __future__ import annotations

from collections.abc import Iterable


def policy(incomplete: str) -> list[str]:
    """Policies by name.

    >>> policy("ofta")
    ['ofta']
    """
    import ata_policies  # noqa: PLC0415 - only a shell asks for them

    return _beginning_with(incomplete, ata_policies.names())


def policies(incomplete: str) -> list[str]:
    """Policies by name, separated by commas: the last one is completed.

    >>> policies("uta,ata-i")
    ['uta,ata-icml']
    """
    before, comma, last = incomplete.rpartition(",")
    return [f"{before}{comma}{name}" for name in policy(last) if name not in before.split(",")]


def scenario(incomplete: str) -> list[str]:
    """Scenarios, those of recorded speeds too.

    >>> scenario("alibaba-1"), scenario("five")
    (['alibaba-1'], ['five-workers'])
    """
    from ata_gym.scenarios import scenario_names  # noqa: PLC0415
    from ata_gym.scenarios.recorded import RECORDINGS  # noqa: PLC0415

    return _beginning_with(incomplete, (*scenario_names(), *RECORDINGS))


def problem(incomplete: str) -> list[str]:
    """Problems that ship with the package.

    >>> problem("d")
    ['digits']
    """
    from ata_gym.training.problem import problem_names  # noqa: PLC0415

    return _beginning_with(incomplete, problem_names())


def env(incomplete: str) -> list[str]:
    """Envs by their short names.

    >>> env("")
    ['allocation', 'race', 'dispatch']
    """
    from ata_policies.registry import ids_by_name  # noqa: PLC0415

    return _beginning_with(incomplete, ids_by_name())


def _beginning_with(incomplete: str, names: Iterable[str]) -> list[str]:
    """The names that begin with what was typed."""
    return [name for name in names if name.startswith(incomplete)]
