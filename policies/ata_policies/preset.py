"""A preset: a policy by name, as data."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from ata_policies.policy import Policy, Setting


@dataclass(frozen=True)
class Preset:
    """What makes a policy: a class, and hyperparameters of it; with what is said of the policy in lists.

    Calling it makes the policy; hyperparameters given then override the preset's.
    """

    name: str
    build: Callable[..., Policy]
    """The policy's class."""
    hyperparameters: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    about: str = ""
    """One sentence; by default the first line of the docstring of ``described``."""
    described: type[Any] | None = None
    """The class whose docstring and attributes describe the policy: by default ``build``."""
    said: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    """source, constants, knows or assumes, where they are others than those of ``described``."""

    def __call__(self, setting: Setting, *, seed: int = 0, **hyperparameters: Any) -> Policy:
        """Make the policy for a setting."""
        return self.build(setting, seed=seed, **{**self.hyperparameters, **hyperparameters})

    def summary(self) -> str:
        """What the policy does, in a sentence."""
        return self.about or self.documentation().partition("\n")[0]

    def documentation(self) -> str:
        """The docstring of what is described, without indentation."""
        return inspect.getdoc(self._described) or ""

    @cached_property
    def _described(self) -> Any:
        return self.described or self.build

    @property
    def __name__(self) -> str:
        """As classes have it, for messages."""
        return self.name

    @property
    def source(self) -> str:
        """Where the policy comes from."""
        return self._say("source")

    @property
    def constants(self) -> str:
        """Its constants."""
        return self._say("constants")

    @property
    def knows(self) -> str:
        """What it must know before it starts, beside n and B."""
        return self._say("knows")

    @property
    def assumes(self) -> str:
        """What it assumes of the task times."""
        return self._say("assumes")

    @property
    def env_id(self) -> str:
        """The env that it plays."""
        return str(self.build.env_id)  # type: ignore[attr-defined]

    @property
    def learns(self) -> bool:
        """Whether it learns."""
        return bool(self.build.learns)  # type: ignore[attr-defined]

    @property
    def priced(self) -> bool:
        """Whether its actions depend on the price of worker time."""
        return bool(self.build.priced)  # type: ignore[attr-defined]

    @property
    def privileged(self) -> bool:
        """Whether ``predict`` needs the conditions of the coming round."""
        return bool(self.build.privileged)  # type: ignore[attr-defined]

    @property
    def nonstationary(self) -> bool:
        """Whether it is made for workers that change."""
        return bool(self._described.nonstationary or self.said.get("nonstationary"))

    def _say(self, name: str) -> str:
        return self.said.get(name, getattr(self._described, name))
