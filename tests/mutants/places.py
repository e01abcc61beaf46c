"""Where the source can be changed by one token, and a random sample of these places."""

import ast
import random
from collections import defaultdict
from pathlib import Path
from typing import Any, NamedTuple

from cosmic_ray.ast import ast_nodes, get_ast
from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator

SOURCES = ("ata_gym", "policies/ata_policies")
_PAIRS = {
    "Binary": (
        "Add_Sub Sub_Add Mul_Div Div_Mul FloorDiv_Mul Mod_Mul Pow_Mul LShift_RShift RShift_LShift "
        "BitOr_BitAnd BitAnd_BitOr BitXor_BitOr"
    ),
    "Comparison": (
        "Eq_NotEq NotEq_Eq Lt_LtE Lt_Gt LtE_Lt LtE_Gt Gt_GtE Gt_Lt GtE_Gt GtE_Lt Is_IsNot IsNot_Is"
    ),
    "Unary": "USub_UAdd Delete_Not Delete_Invert",
}
OPERATORS = (
    *(
        f"core/Replace{kind}Operator_{pair}"
        for kind, pairs in _PAIRS.items()
        for pair in pairs.split()
    ),
    *(
        "core/AddNot",
        "core/ReplaceTrueWithFalse",
        "core/ReplaceFalseWithTrue",
        "core/ReplaceAndWithOr",
    ),
    *("core/ReplaceOrWithAnd", "core/ReplaceBreakWithContinue", "core/ReplaceContinueWithBreak"),
    *("core/NumberReplacer", "core/ZeroIterationForLoop"),
)
"""Changes of Cosmic Ray that a test should see.

Those that replace any operator by each other one are left out: they
give many mutants at one place, most of which fail at once."""


class Place(NamedTuple):
    """A mutant: one occurrence of what an operator changes in a file."""

    file: str
    line: int
    operator: str
    occurrence: int

    @property
    def room(self) -> str:
        """The room of the file: the first folder of its package, as in "pools" or
        "policies/race".
        """
        package, *rest = self.file.removeprefix("policies/").split("/")
        if len(rest) > 1:
            room = rest[0]
        else:
            room = "the root"
        if package == "ata_gym":
            return room
        return f"policies/{room}"

    @property
    def tests(self) -> str:
        folder = Path(self.file.replace("policies/ata_policies", "ata_gym/policies")).parent
        return Path("tests", folder.relative_to("ata_gym")).as_posix()

    def mutated(self, source: str) -> str:
        code = mutate_code(source, get_operator(self.operator)(), self.occurrence)
        if code is None:
            raise ValueError(f"{self.file} has no {self.operator} number {self.occurrence}")
        return str(code)


def all_places(root: Path) -> list[list[Place]]:
    places: dict[tuple[str, int], list[Place]] = defaultdict(list)
    operators = {name: get_operator(name)() for name in OPERATORS}
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*.py")):
            source = path.read_text(encoding="utf-8")
            file = path.relative_to(root).as_posix()
            nodes = list(ast_nodes(get_ast(source)))
            unseen = _annotations(source)
            for name, operator in operators.items():
                positions = (at for node in nodes for at in operator.mutation_positions(node))
                for occurrence, (start, _) in enumerate(positions):
                    if not any(first <= start < last for first, last in unseen):
                        places[file, start[0]].append(Place(file, start[0], name, occurrence))
    return list(places.values())


def sample(root: Path, number: int, seed: int, room: str = "") -> list[Place]:
    """So many mutants on different lines of a checkout, or of one of its rooms, in random order."""
    generator = random.Random(seed)
    places = [own for own in all_places(root) if own[0].room.startswith(room)]
    return [generator.choice(own) for own in generator.sample(places, min(number, len(places)))]


def _annotations(source: str) -> list[tuple[tuple[int, int], tuple[int, int]]]:
    """The spans of type annotations, which are never evaluated: no test can see a change of
    them.
    """
    nodes = ast.walk(ast.parse(source))
    found: list[Any] = [
        getattr(node, "annotation", None) or getattr(node, "returns", None) for node in nodes
    ]
    return [
        ((one.lineno, one.col_offset), (one.end_lineno, one.end_col_offset))
        for one in found
        if one is not None
    ]
