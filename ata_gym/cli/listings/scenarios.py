"""``ata-gym scenarios``: the tables of named and recorded scenarios."""

from __future__ import annotations

from ata_gym.changes import Redraw
from ata_gym.cli.console import show
from ata_gym.scenarios import Scenario, scenario, scenario_names
from ata_gym.scenarios.recorded import RECORDINGS


def scenarios() -> None:
    """List the named scenarios: n workers, B results a round, and the published hyperparameters alpha and eta.

    Below them the recorded ones: `ata-gym bench` and `track` make them of a file in the folder given as --data.
    """
    from ata_gym.bench.report.table import LEFT, WRAP, Table, right  # noqa: PLC0415 - the bench takes a second

    rows = []
    for name in scenario_names():
        s = scenario(name)
        numbers = s.budget, *(_number(value) for value in (s.horizon, s.alpha, s.eta))
        rows.append((name, _workers(s), *map(str, numbers), s.summary))
    titles = right(("n", "B", "rounds", "alpha", "eta"))
    show(Table("", {"scenario": LEFT, **titles, "task times": WRAP}, rows))
    rows = [(name, str(r.budget), f"{r.rounds:,}", r.file, r.summary) for name, r in RECORDINGS.items()]
    show(Table("", {"recorded": LEFT, **right(("B", "rounds")), "file": WRAP, "task times": WRAP}, rows))


def _workers(s: Scenario) -> str:
    """How many workers there are; where they are drawn anew, the fewest and the most."""
    fewest = [change.pools.fewest for change in s.changes if isinstance(change, Redraw)]
    return f"{fewest[0]}-{s.pool.n}" if fewest and fewest[0] != s.pool.n else str(s.pool.n)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,}" if isinstance(value, int) else f"{value:.6g}"
