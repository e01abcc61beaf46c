"""What lists and cards say of a policy, and of the parts that policies are made of."""

import inspect
from typing import ClassVar


class Described:
    """A class that says of itself where it comes from, and what it knows and assumes."""

    source: ClassVar[str] = ""  # where it comes from
    constants: ClassVar[str] = ""  # the constants of its rule
    knows: ClassVar[str] = "nothing"  # what it must know before it starts, beside n and B
    assumes: ClassVar[str] = "nothing"  # what its rule or guarantee assumes of the task times
    nonstationary: ClassVar[bool] = False  # whether it is made for workers that change

    @classmethod
    def summary(cls) -> str:
        """The first line of the class's docstring."""
        return cls.documentation().partition("\n")[0]

    @classmethod
    def documentation(cls) -> str:
        """The class's docstring, without indentation."""
        return inspect.getdoc(cls) or ""
