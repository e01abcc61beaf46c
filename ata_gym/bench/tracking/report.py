"""The report on tracked policies: delays and costs of the changes, tables, and the picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report.headline import SAID, Samples, beside, in_brackets, listed
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate, estimates
from ata_gym.bench.report.summary_tables import scaled, show
from ata_gym.bench.report.table import LEFT, Cell, Table, markdown, right
from ata_gym.bench.tracking import picture
from ata_gym.bench.tracking.experiment import ORACLES, Tracking
from ata_gym.typing import Floats, Ints

Windows = Sequence[tuple[int, int, int]]

WITHIN = 0.1  # a policy has followed when its expected round time is so near that of the oracle, as a share of it
BLOCK = 20  # the rounds over which it must be so near on average: one short round is not enough
NEVER = -1  # the delay of a policy that has not followed before its window ends

SHORT = {"dynamic-oracle": "oracle", "dynamic-ofta": "OFTA"}


def report(tracking: Tracking, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given, and leave tables, delays and the picture in their folder."""
    records = folder.results(policies)
    windows = tracking.windows()
    found, summary = delays(records, windows), summarise(records, windows)
    tables = _tables(cells(found, summary, tracking.after), tracking)
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary, "delays.csv": found})
    pictures = picture.draw(records, tracking, folder.path / "plots")
    return Report(summary, tables, files, pictures, remark=lead(found, after_changes(records, windows), tracking.after))


def lead(found: pl.DataFrame, after_change: Samples, after: int) -> str:
    """Who follows a change the soonest, who as soon, and how long its rounds are meanwhile.

    Of each seed the mean delay is compared, where an unknown one counts as ``after`` + 1 rounds. Policies are tied with
    the best if the difference, paired by seed, may be 0.
    """
    known = found.filter(oracle=ORACLES[0]).with_columns(pl.col("delay").fill_null(after + 1))
    of = {
        str(policy): mine.group_by("seed", maintain_order=True).agg(pl.col("delay").mean())["delay"].to_numpy()
        for (policy,), mine in known.group_by("policy", maintain_order=True)
    }
    names = [name for name in of if name not in ORACLES] or list(of)
    medians = {name: known.filter(policy=name)["delay"].to_numpy() for name in names}
    in_time = [name for name in names if np.median(medians[name]) <= after]
    seeds = len(of[names[0]])
    if not in_time:
        return f"No policy follows the change within {after:,} rounds in the median."
    best = min(in_time, key=lambda name: float(of[name].mean()))
    differences = {name: Estimate.of(of[name] - of[best]) for name in names if name != best}
    tied = [name for name, more in differences.items() if more.mean == 0.0 or more.low <= 0.0 <= more.high]
    delay, most = Estimate.of(of[best]), len(names)
    between = "" if seeds == 1 else f" ({max(delay.low, 0.0):.1f} to {delay.high:.1f})"
    many = f" of {most}" if most > 1 else ""
    sentence = f"{best} follows a change the soonest{many}, after {delay.mean:.1f}{between} rounds on average"
    sentence += f", tied with {listed(tied)}" if tied else ""
    late = most - len(in_time)
    sentence += f"; {late} of {most} do not within {after:,} rounds in the median" if late else ""
    others = {name: SAID[name] for name in (ORACLES[0], "uta", "ata", "ata-icml")}
    lines = [f"{sentence}.", *(f"  {line}" for line in beside(after_change, best, others))]
    return "\n".join([in_brackets(1), *lines] if seeds == 1 else [*lines, in_brackets(seeds)])


def after_changes(records: pl.DataFrame, windows: Windows) -> Samples:
    """Expected round times after the changes, added up: of each policy, and of the oracle of the distributions."""
    of: dict[str, Floats] = {}
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        sums = np.sum([_sums(mine, change, end) for _, change, end in windows], axis=0)
        of |= {str(policy): sums[0], ORACLES[0]: sums[1]}
    return {"expected round time": of}


def cells(found: pl.DataFrame, summary: pl.DataFrame, after: int) -> dict[str, dict[str, Cell]]:
    """The delays and costs of each policy by their titles; an unknown delay is longer than ``after`` rounds."""
    of: dict[str, dict[str, Cell]] = {policy: {} for policy in found["policy"].unique(maintain_order=True)}
    for (policy, oracle), mine in found.group_by("policy", "oracle", maintain_order=True):
        known, never = mine["delay"].fill_null(after + 1).to_numpy(), mine["delay"].null_count()
        values = float(np.median(known)), float(known.max())
        for name, said, value in zip(("median delay", "longest"), waiting(mine["delay"], after), values, strict=True):
            of[str(policy)][f"{name}\nto {SHORT[str(oracle)]}"] = Cell(said, value)
        of[str(policy)][f"never\nto {SHORT[str(oracle)]}"] = Cell(f"{never} of {len(mine)}", never)
    for (quantity,), there in summary.group_by("quantity", maintain_order=True):
        part, _, oracle = str(quantity).partition("/")
        title, unit = (f"{part}\n/ {SHORT[oracle]}", 1.0) if oracle else scaled(part, there)
        for policy, mean, high in there.select("policy", "mean", "high").rows():
            of[policy][title if oracle else f"{title}\nof a change"] = Cell(show(mean, high, unit), mean)
    return of


def _tables(of: Mapping[str, Mapping[str, Cell]], tracking: Tracking) -> list[Table]:
    """The delays after the changes, and the round times around them and the regret after them."""
    changes = f"{len(tracking.changed_at)} changes, the first" if len(tracking.changed_at) > 1 else "a change"
    delays = (
        f"{tracking.about}\n{changes} after {tracking.changed_at[0]:,} rounds, {plural(tracking.seeds, 'seed')}\n"
        f"delay: rounds until the expected round time is within {WITHIN:.0%} of the oracle's (or OFTA's),\n"
        f"on average over {BLOCK} rounds; never: not within the {tracking.after:,} rounds after the change"
        f"{', or fewer where the next one is nearer' * tracking.uneven}"
    )
    costs = (
        f"expected round times of {tracking.before:,} rounds before a change and {tracking.after:,} after it"
        f"{' at most' * tracking.uneven},\n"
        "divided by those of the oracle that knows the distributions, and of the one that knows the means (OFTA)"
    )
    titles = list(next(iter(of.values())))
    parts = {delays: [title for title in titles if "\nto " in title], costs: [t for t in titles if "\nto " not in t]}
    return [
        Table(
            about, {"policy": LEFT, **right(shown)}, [(name, *(row[t].text for t in shown)) for name, row in of.items()]
        )
        for about, shown in parts.items()
    ]


def waiting(delays: pl.Series, most: int) -> tuple[str, str]:
    """The median and the longest, where null is longer than ``most``.

    >>> waiting(pl.Series([3, 5, 8]), 100), waiting(pl.Series([3, None, None]), 100)
    (('5', '8'), ('> 100', '> 100'))
    """
    known = np.sort(delays.fill_null(most + 1).to_numpy())
    middle, longest = (f"> {most:,}" if rounds > most else f"{rounds:,.0f}" for rounds in (np.median(known), known[-1]))
    return middle, longest


def delay(expected: Floats, best: Floats, block: int = BLOCK) -> Ints:
    """Rounds from a change until expected round times, shape (..., K), are near those of the oracle's allocations.

    It is the least d such that over the rounds d, d + 1, ..., d + block - 1 after the change (fewer, where the window
    ends) the mean of expected / best is at most 1 + ``WITHIN``; ``NEVER`` where there is no such d. Shape (...,).

    >>> delay(np.array([9.0, 1.0, 9.0, 1.0, 1.0, 1.0]), np.ones(6), block=3)
    array(3)
    >>> delay(np.array([9.0, 1.0, 9.0]), np.ones(3), block=3)
    array(-1)
    """
    with np.errstate(divide="ignore", invalid="ignore"):  # recorded times may be 0
        ratio = np.where(expected == best, 1.0, expected / best)
    rounds = ratio.shape[-1]
    block = min(block, rounds)
    near = np.stack([ratio[..., d : d + block].mean(axis=-1) <= 1 + WITHIN for d in range(rounds - block + 1)], axis=-1)
    return np.where(near.any(axis=-1), near.argmax(axis=-1), NEVER)


def delays(records: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """The delays in records as of ``experiment.SCHEMA``, in windows as ``Tracking.windows`` gives them.

    Columns policy, seed, change (the rounds before it), oracle, delay (null: never).
    """
    rows = []
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        for _, change, end in windows:
            after = _between(mine, change, end)
            seeds = after["seed"].unique(maintain_order=True).to_list()
            for oracle in ORACLES:
                expected, best = (after[name].to_numpy().reshape(len(seeds), -1) for name in ("expected", oracle))
                waited = delay(expected, best).tolist()
                rows += [(policy, seed, change, oracle, d) for seed, d in zip(seeds, waited, strict=True)]
    found = pl.DataFrame(rows, ["policy", "seed", "change", "oracle", "delay"], orient="row")
    return found.with_columns(delay=pl.when(pl.col("delay") != NEVER).then("delay"))


def summarise(records: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """What a policy's changes have in common: columns policy, quantity, and mean, low, high over seeds.

    The quantities are ``before/dynamic-oracle``, ``after/dynamic-oracle``, ... (the expected round times in all windows
    before or after the changes, added up, over those of the oracle) and ``regret`` (proxy regret from a change to the
    end of its window, mean over changes).
    """
    before = [(low, change) for low, change, _ in windows]
    after = [(change, end) for _, change, end in windows]
    rows: list[tuple[object, ...]] = []
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        for part, rounds in (("before", before), ("after", after)):
            sums = np.sum([_sums(mine, low, end) for low, end in rounds], axis=0)
            rows += [
                (policy, f"{part}/{oracle}", Estimate.of_ratio(sums[0], sums[k])) for k, oracle in enumerate(ORACLES, 1)
            ]
        regrets = [_regret(mine, end) - _regret(mine, change) for change, end in after]
        rows.append((policy, "regret", Estimate.of(np.mean(regrets, axis=0))))
    return estimates(rows, ["policy", "quantity"])


def _between(records: pl.DataFrame, low: int, end: int) -> pl.DataFrame:
    """The rounds after ``low`` up to ``end``."""
    return records.filter((pl.col("round") > low) & (pl.col("round") <= end))


def _sums(mine: pl.DataFrame, low: int, end: int) -> Floats:
    """Expected round times, the policy's and the oracles', of the rounds between: shape (3, seeds)."""
    by_seed = _between(mine, low, end).group_by("seed", maintain_order=True)
    return by_seed.agg(pl.col("expected", *ORACLES).sum()).drop("seed").to_numpy().T


def _regret(mine: pl.DataFrame, round: int) -> Floats:
    """The regret after so many rounds, shape (seeds,)."""
    return mine.filter(pl.col("round") == round)["regret"].to_numpy()
