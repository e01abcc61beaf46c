"""The report on a leaderboard: tables for the terminal, Markdown to paste, CSV with all digits, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.leaderboard import front, ranking, scenarios
from ata_gym.bench.leaderboard.experiment import Leaderboard, PricedJob, finals
from ata_gym.bench.leaderboard.tables import details, nearness, overview, played
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.table import markdown

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over scenarios and seeds, of the cost divided "
    "by that of the best learner of the same env, scenario and price, on the same seeds, and half its 95 % confidence "
    "interval; columns with / oracle divide by the best oracle instead. Oracles know what learners must learn; "
    "baselines neither know nor learn."
)


def report(board: Leaderboard, jobs: Sequence[PricedJob], defaults: Mapping[str, str], notes: Sequence[str]) -> Report:
    """Rank finished jobs, and leave tables and the picture in the board's folder.

    Parameters
    ----------
    board
        Who played where.
    jobs
        Those that have results.
    defaults
        The recommended policy of each env.
    notes
        What a reader should know of the results, as sentences.
    """
    everything = ranking.ratios(finals(jobs))
    ranked = everything.filter(pl.col("price").is_in(list(board.prices)))
    by_scenario, by_price = ranking.by_scenario(ranked), ranking.overall(ranked)
    short = [*overview(by_price, ranking.overall(ranked, by_price=False)), *nearness(by_scenario, defaults)]
    heading, pictures = _heading(board), []
    if scenarios.FRONT in [scenario.name for scenario in board.scenarios]:
        points = ranking.by_scenario(everything.filter(pl.col("scenario") == scenarios.FRONT))
        pictures = front.draw(points, f"{scenarios.FRONT}, {heading}", board.out / "front")
    text = "\n".join(
        [
            f"## {heading}\n",
            *(f"{note}\n" for note in (*notes, LEGEND)),
            markdown(short),
            *(f"![Runtime against worker time of every policy]({path.name})\n" for path in pictures[:1]),
            markdown([*details(by_price), played(board.scenarios)]),
        ]
    )
    files = write(board.out, {"leaderboard.md": text, "leaderboard.csv": by_price, "scenarios.csv": by_scenario})
    return Report(by_price, short, files, pictures, "\n".join([heading, *notes]))


def _heading(board: Leaderboard) -> str:
    """The version of the set, and what was played of it."""
    quick = " (quick look)" * board.quick
    several = f"{len(board.scenarios)} of {len(scenarios.names())} scenarios"
    version = f"{scenarios.VERSION}-{scenarios.fingerprint()[:8]}"
    return f"Leaderboard {version}{quick}: {several}, {plural(board.seeds, 'seed')}"
