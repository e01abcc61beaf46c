"""What each constant of the default is worth: a copy in which it is halved, doubled, 0 or infinite
plays short worlds.

``python -m tests.mutants.ablation`` leaves ``ablation.md`` and ``ablation.csv``. A loss is how much
more runtime the changed default needs on the same seeds. A mechanism that 0 or infinity switches
off without a loss can go.
"""

import ast
import json
import math
import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import gymnasium as gym
import numpy as np
import polars as pl
import typer

import ata_policies
from ata_gym.bench.report.report import write
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.report.summary_tables import show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.studies.leaderboard.sets import SETS
from ata_policies.steps import play
from tests.mutants.copies import ROOT, changed, checksum, copy_of, outcomes, run_in

# rooms of races are left out
ROOMS = (
    "beliefs/distributions/*.py",
    "beliefs/distributions/adjustments/*.py",
    "planning/[!r]*.py",
    "allocation/distribution_learner.py",
    "allocation/experts.py",
)
WORLDS = "steady:short,changing:stragglers-groups,unseen:racks,drawn:drawn-changing-12-v2"
_POSSIBLE = {tuple: 2, int: 3, float: 4}  # of half, double, 0 and infinity


class Variant(NamedTuple):
    worlds: str
    seeds: int
    rounds: int
    file: str = ""
    name: str = ""
    value: str = ""
    becomes: str = ""

    def applied(self, source: str) -> str:
        lines = source.split("\n")
        for at, name, _ in constants(source):
            if name == self.name:
                lines[at.lineno - 1 : at.end_lineno] = [
                    f"{name} = {self.becomes}".replace("inf", 'float("inf")'),
                ]
        return "\n".join(lines)


def constants(source: str) -> Iterator[tuple[ast.Assign, str, Any]]:
    for at in ast.parse(source).body:
        if isinstance(at, ast.Assign) and isinstance(at.targets[0], ast.Name):
            with suppress(NameError):  # computed from something else
                value = eval(ast.unparse(at.value), {"math": math, "__builtins__": {}})
                if all(
                    type(one) in (int, float)
                    for one in (value if isinstance(value, tuple) else (value,))
                ):
                    yield at, at.targets[0].id, value


def variants(unchanged: Variant, only: str) -> Iterator[Variant]:
    """Half, double, 0 and infinity in place of each constant whose file and name ``only`` finds."""
    for path in (
        path for room in ROOMS for path in sorted((ROOT / "policies/ata_policies").glob(room))
    ):
        file = path.relative_to(ROOT).as_posix()
        for _, name, value in constants(path.read_text(encoding="utf-8")):
            for by in (0.5, 2.0, 0.0, math.inf)[: _POSSIBLE[type(value)]]:
                parts = [
                    type(one)(by * one) for one in (value if isinstance(value, tuple) else (value,))
                ]
                becomes = repr(tuple(parts) if isinstance(value, tuple) else parts[0])
                if becomes != repr(value) and re.search(only, f"{file}:{name}"):
                    yield unchanged._replace(
                        file=file,
                        name=name,
                        value=repr(value),
                        becomes=becomes,
                    )


def runtimes(worlds: str, seeds: int, rounds: int) -> dict[str, list[float]]:
    """The runtime of the default on each seed of some scenarios of the leaderboard, in their first
    rounds.
    """
    found = {}
    for world in worlds.split(","):
        of, _, name = world.partition(":")
        scenario = SETS[of].find(name)
        options = {"scenario": replace(scenario, horizon=min(rounds, scenario.horizon or rounds))}
        env = gym.make_vec(
            "ata_gym/TaskAllocation-v0",
            seeds,
            vectorization_mode="vector_entry_point",
            **options,
        )
        *_, last = (
            step.info["runtime"]
            for step in play(ata_policies.make("default", env), env, SETS[of].first_seed)
        )
        found[world] = last.tolist()
    return found


def _played(variant: Variant, copy: Path, seconds: float) -> dict[str, list[float]] | None:
    """What a variant needs, or None where it does not run to its end in time."""
    call = f"print(json.dumps(m.runtimes{tuple(variant[:3])}))"
    command = [sys.executable, "-c", f"import json, tests.mutants.ablation as m; {call}"]
    with changed(copy / (variant.file or "README.md"), variant.applied if variant.file else str):
        code, printed = run_in(copy, command, seconds)
    if code == 0:
        return dict(json.loads(printed))
    return None


def losses(found: Mapping[Variant, Any], unchanged: Variant) -> pl.DataFrame:
    """Mean loss in percent, its 95 % interval, and the loss of the worst seed, of each variant, in
    each world and in all.
    """
    base = {world: np.array(times) for world, times in found[unchanged].items()}
    rows = []
    for variant, of in list(found.items())[1:]:
        for name, several in {"all": [*base], **{world: [world] for world in base}}.items():
            mine = [np.array((of or base)[world]) for world in several]
            beside = [base[world] for world in several]
            worst = max(float((a / b).max()) for a, b in zip(mine, beside, strict=True))
            figures = (100 * (ratio - 1) for ratio in (*Estimate.from_ratios(mine, beside), worst))
            rows.append((*variant[3:], name, *(figures if of else [None] * 4)))
    columns = [*Variant._fields[3:], "world", "loss", "low", "high", "worst"]
    return pl.DataFrame(rows, columns, orient="row", infer_schema_length=None).fill_nan(None)


def table(lost: pl.DataFrame, unchanged: Variant) -> Table:
    rows = []
    for (file, name, value, becomes), mine in lost.group_by(
        *Variant._fields[3:],
        maintain_order=True,
    ):
        figures = mine.select("loss", "high", "worst").rows()
        cells = (
            "fails" if worst is None else f"{show(loss, high)} ({worst:.2g})"
            for loss, high, worst in figures
        )
        rows.append((f"{Path(str(file)).stem}.{name} = {value}", str(becomes), *cells))
    title = (
        f"{unchanged.seeds} seeds, up to {unchanged.rounds:,} rounds: loss in percent (on the worst"
        " seed)"
    )
    return Table(
        title,
        {"constant": LEFT, "becomes": LEFT, **right(lost["world"].unique(maintain_order=True))},
        rows,
    )


def ablation(
    worlds: Annotated[
        str,
        typer.Option(help="set:scenario of the leaderboard, separated by commas."),
    ] = WORLDS,
    seeds: Annotated[int, typer.Option(help="Paired seeds in each world.")] = 16,
    rounds: Annotated[int, typer.Option(help="The largest number of rounds in a world.")] = 300,
    seconds: Annotated[float, typer.Option(help="The longest time of one variant.")] = 600.0,
    only: Annotated[
        str,
        typer.Option(help="A regular expression that file:constant must match."),
    ] = "",
    jobs: Annotated[int, typer.Option(help="Variants that play at a time.")] = 2,
    out: Annotated[Path, typer.Option(help="Its folder: a stopped run goes on.")] = Path(
        "build/ablation",
    ),
) -> None:
    """Say what the default loses where a constant has half or double its value, or switches its
    mechanism off.
    """
    folder = out.resolve() / checksum("ata_gym/", "policies/")
    unchanged = Variant(worlds, seeds, rounds)
    copies = [copy_of(folder / f"copy-{number}" / "ata-gym") for number in range(jobs)]
    todo = [unchanged, *variants(unchanged, only)]
    if not todo[1:]:
        raise SystemExit(f"no constant of the default matches --only {only}")
    found = outcomes(
        folder / "results.jsonl",
        todo,
        copies,
        lambda one, copy: _played(one, copy, seconds),
        "Playing",
    )
    if found[unchanged] is None:
        raise SystemExit(
            "the unchanged default did not play to its end: see that it runs, or give more"
            " --seconds",
        )
    lost = losses(found, unchanged)
    print(
        *write(out, {"ablation.md": markdown([table(lost, unchanged)]), "ablation.csv": lost}),
        sep="\n",
    )


if __name__ == "__main__":
    typer.run(ablation)
