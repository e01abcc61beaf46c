"""The report on a leaderboard: tables for the terminal, Markdown to paste, CSV with all digits, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import polars as pl

from ata_gym.bench import fronts, ranking, worlds
from ata_gym.bench.leaderboard import Leaderboard, Play, finals
from ata_gym.bench.ranking_tables import details, nearness, overview, scenery
from ata_gym.bench.tables import Titled, markdown
from ata_gym.files import write_whole

LEGEND = (
    "cost = runtime + price x worker time. A cell is the geometric mean, over worlds and seeds, of the cost divided by "
    "that of the best learner of the same env, world and price, on the same seeds, and half its 95 % confidence "
    "interval. Oracles know what learners must learn; baselines neither know nor learn."
)


class Report(NamedTuple):
    """What there is to show."""

    heading: str
    tables: list[Titled]
    """For the terminal: each env's ranking over all prices, and how near the defaults are to the best."""
    files: list[Path]
    pictures: list[Path]


def report(board: Leaderboard, plays: Sequence[Play], defaults: Mapping[str, str], notes: Sequence[str]) -> Report:
    """Rank finished runs, and leave tables and the picture in the board's folder.

    Parameters
    ----------
    board
        Who played where.
    plays
        The runs that have results.
    defaults
        The recommended policy of each env.
    notes
        What a reader should know of the run, as sentences.
    """
    everything = ranking.ratios(finals(plays))
    ranked = everything.filter(pl.col("price").is_in(list(board.prices)))
    by_world, by_price = ranking.by_world(ranked), ranking.overall(ranked)
    at_all_prices = ranking.overall(ranked, by_price=False)

    def short() -> list[Titled]:
        return [*overview(by_price, at_all_prices), *nearness(by_world, defaults)]

    heading, pictures = _heading(board), []
    if worlds.FRONT in [world.name for world in board.worlds]:
        points = ranking.by_world(everything.filter(pl.col("world") == worlds.FRONT))
        pictures = fronts.draw(points, f"{worlds.FRONT}, {heading}", board.out / "front")
    files = [board.out / name for name in ("leaderboard.md", "leaderboard.csv", "worlds.csv")]
    text = "\n".join(
        [
            f"## {heading}\n",
            *(f"{note}\n" for note in (*notes, LEGEND)),
            markdown(short()),
            *(f"![Runtime against worker time of every policy]({path.name})\n" for path in pictures[:1]),
            markdown([*details(by_price), scenery(board.worlds)]),
        ]
    )
    write_whole(files[0], lambda part: part.write_text(text, "utf-8"))
    write_whole(files[1], by_price.write_csv)
    write_whole(files[2], by_world.write_csv)
    return Report(heading, short(), files, pictures)


def _heading(board: Leaderboard) -> str:
    """The version of the whole set, and what was played of it."""
    quick = " (quick look)" * board.quick
    several = f"{len(board.worlds)} of {len(worlds.world_names())} worlds"
    about = f"{several}, {board.seeds} seed{'s' * (board.seeds > 1)}"
    return f"Leaderboard {worlds.VERSION}-{worlds.fingerprint()[:8]}{quick}: {about}"
