"""The report on tracked policies: delays and costs of the changes, tables, and the picture."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap, PowerNorm
from numpy.typing import NDArray

from ata_gym.bench.experiment.experiment import plural
from ata_gym.bench.experiment.store import Folder
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import SAID, Samples, beside, listed, with_intervals
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate, different_pairs, estimates
from ata_gym.bench.report.summary_tables import scaled, show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.tracking.experiment import ORACLES, Tracking
from ata_gym.typing import Floats, Ints

Windows = Sequence[tuple[int, int, int]]

WITHIN = 0.1  # a policy has followed when its expected round time is so near that of the oracle, as a share of it
BLOCK = 20  # the rounds over which it must be so near on average: one short round is not enough
NEVER = -1  # the delay of a policy that has not followed before its window ends

_SHORT = {"dynamic-oracle": "oracle", "dynamic-ofta": "OFTA"}

_COLUMNS = 400  # the largest number of columns of a heat map; each shows the mean over its rounds

_SMOOTH = 20  # rounds over which round times are smoothed


def report(tracking: Tracking, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given, and leave tables, delays and the picture in their folder."""
    records = folder.results(policies)
    windows = tracking.windows()
    found, summary = delays(records, windows), summarise(records, windows)
    tables = _tables(_cells(found, summary, tracking.after), tracking)
    files = write(folder.path, {"table.md": markdown(tables), "table.csv": summary, "delays.csv": found})
    pictures = draw(records, tracking, folder.path / "plots")
    return Report(summary, tables, files, pictures, remark=lead(found, after_changes(records, windows), tracking.after))


def lead(found: pl.DataFrame, after_change: Samples, after: int) -> str:
    """Who follows a change the soonest, who as soon, and how long its rounds are meanwhile.

    Of each seed the mean delay is compared, where an unknown one counts as ``after`` + 1 rounds. Policies are tied as
    ``different_pairs`` says.
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
    different = different_pairs(of)
    tied = [name for name in names if name != best and frozenset((name, best)) not in different]
    delay, most = Estimate.of(of[best]), len(names)
    between = "" if seeds == 1 else f" ({max(delay.low, 0.0):.1f} to {delay.high:.1f})"
    many = f" of {most}" if most > 1 else ""
    sentence = f"{best} follows a change the soonest{many}, after {delay.mean:.1f}{between} rounds on average"
    sentence += f", tied with {listed(tied)}" if tied else ""
    late = most - len(in_time)
    sentence += f"; {late} of {most} do not within {after:,} rounds in the median" if late else ""
    others = {name: SAID[name] for name in (ORACLES[0], "uta", "ata", "ata-icml")}
    lines = [f"{sentence}.", *(f"  {line}" for line in beside(after_change, best, others))]
    return with_intervals(lines, seeds)


def after_changes(records: pl.DataFrame, windows: Windows) -> Samples:
    """Expected round times after the changes, added up: of each policy, and of the oracle of the distributions."""
    of: dict[str, Floats] = {}
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        sums = np.sum([_sums(mine, change, end) for _, change, end in windows], axis=0)
        of |= {str(policy): sums[0], ORACLES[0]: sums[1]}
    return {"expected round time": of}


def _cells(found: pl.DataFrame, summary: pl.DataFrame, after: int) -> dict[str, dict[str, str]]:
    of: dict[str, dict[str, str]] = {policy: {} for policy in found["policy"].unique(maintain_order=True)}
    for (policy, oracle), mine in found.group_by("policy", "oracle", maintain_order=True):
        never = f"{mine['delay'].null_count()} of {len(mine)}"
        said = zip(("median delay", "longest", "never"), (*waiting(mine["delay"], after), never), strict=True)
        of[str(policy)] |= {f"{name}\nto {_SHORT[str(oracle)]}": words for name, words in said}
    for (quantity,), there in summary.group_by("quantity", maintain_order=True):
        part, _, oracle = str(quantity).partition("/")
        title, unit = (f"{part}\n/ {_SHORT[oracle]}", 1.0) if oracle else scaled(part, there)
        for policy, mean, high in there.select("policy", "mean", "high").rows():
            of[policy][title if oracle else f"{title}\nof a change"] = show(mean, high, unit)
    return of


def _tables(of: Mapping[str, Mapping[str, str]], tracking: Tracking) -> list[Table]:
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
    made = []
    for about, of_delays in ((delays, True), (costs, False)):
        shown = [title for title in next(iter(of.values())) if ("\nto " in title) == of_delays]
        rows = [(name, *(row[title] for title in shown)) for name, row in of.items()]
        made.append(Table(about, {"policy": LEFT, **right(shown)}, rows))
    return made


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
    """Columns policy, seed, change (the rounds before it), oracle, delay (null: never)."""
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
    """What the changes have in common: columns policy, quantity, and mean, low, high over seeds.

    The quantities are ``before/<oracle>`` and ``after/<oracle>`` (the expected round times in all windows, added up,
    over those of the oracle) and ``regret`` (proxy regret from a change to the end of its window, mean over changes).
    """
    before = [(low, change) for low, change, _ in windows]
    after = [(change, end) for _, change, end in windows]
    rows: list[tuple[object, ...]] = []
    for (policy,), mine in records.group_by("policy", maintain_order=True):
        for part, rounds in (("before", before), ("after", after)):
            sums = np.sum([_sums(mine, low, end) for low, end in rounds], axis=0)
            ratios = [Estimate.of_ratio(sums[0], best) for best in sums[1:]]
            rows += [(policy, f"{part}/{oracle}", ratio) for oracle, ratio in zip(ORACLES, ratios, strict=True)]
        regret = {n: there["regret"].to_numpy() for (n,), there in mine.group_by("round", maintain_order=True)}
        regrets = [regret[end] - regret[change] for change, end in after]
        rows.append((policy, "regret", Estimate.of(np.mean(regrets, axis=0))))
    return estimates(rows, ["policy", "quantity"])


def _between(records: pl.DataFrame, low: int, end: int) -> pl.DataFrame:  # the rounds after `low` up to `end`
    return records.filter((pl.col("round") > low) & (pl.col("round") <= end))


def _sums(mine: pl.DataFrame, low: int, end: int) -> Floats:
    """Expected round times, the policy's and the oracles', of the rounds between: shape (3, seeds)."""
    by_seed = _between(mine, low, end).group_by("seed", maintain_order=True)
    return by_seed.agg(pl.col("expected", *ORACLES).sum()).drop("seed").to_numpy().T


def draw(records: pl.DataFrame, tracking: Tracking, folder: Path) -> list[Path]:
    """Draw the first change: the tasks of each worker of the first seed for each policy, and the round times below."""
    low, change, end = tracking.windows()[0]
    inside, policies = _between(records, low, end), records["policy"].unique(maintain_order=True).to_list()
    slowest_last = np.argsort(means_before(tracking), kind="stable")
    since = np.arange(low - change, end - change)
    with style.figure(9.0, 1.25 * len(policies) + 2.8) as picture:
        axes = picture.subplots(len(policies) + 1, 1, sharex=True, height_ratios=[1.0] * len(policies) + [1.5])
        most = max(2, int(inside["tasks"].list.max().quantile(0.99) or 0))
        for panel, policy in zip(axes, policies, strict=False):
            mine = inside.filter((pl.col("policy") == policy) & (pl.col("seed") == tracking.seed))
            tasks = np.array(mine["tasks"].to_list()).T[slowest_last]
            image = _heat(panel, since, tasks, most)
            panel.set_title(policy, fontweight="bold")
        _round_times(axes[-1], inside, style.lines(policies), since)
        for panel in axes:
            panel.axvline(0, color="black", linewidth=1.0, linestyle=(0, (4, 3)))
        picture.supylabel("who works: a line for each worker, the fastest before the change at the bottom", fontsize=10)
        picture.colorbar(image, ax=axes[:-1], label="tasks of a worker in a round", fraction=0.03, pad=0.01)
        here = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points", "fontsize": 9}
        axes[0].annotate("the workers change", (0, 1.0), (4, 2), **here)
        axes[-1].set(xlabel=f"rounds since the change, before which {change:,} were played")
        picture.legend(loc="outside lower center", ncols=4, handlelength=2.6)
        seeds = f"tasks of seed {tracking.seed}, round times of {plural(tracking.seeds, 'seed')}"
        title = f"Who notices that the workers have changed?\n{tracking.about}; {seeds}"
        return style.save(picture, folder / "change", title)


def means_before(tracking: Tracking) -> Floats:
    """Mean task times of the first seed's workers over the rounds before the first change, shape (n,)."""
    low, change, _ = tracking.windows()[0]
    envs = tracking.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    envs.reset(seed=tracking.seed)
    anything = tracking.scenario.budget * np.eye(1, tracking.scenario.pool.n, dtype=np.int64)
    total = np.zeros(tracking.scenario.pool.n)
    for k in range(change):
        if k >= low:
            total += envs.unwrapped.means()[0]  # type: ignore[attr-defined]
        envs.step(anything)
    return total / (change - low)


def _heat(axes: Axes, since: Ints, tasks: NDArray[np.int64], most: int) -> Any:  # draw tasks, shape (n, rounds)
    edges = np.unique(np.linspace(0, tasks.shape[1], _COLUMNS + 1).astype(np.int64))
    shown = np.add.reduceat(tasks, edges[:-1], axis=1) / np.diff(edges)
    rows = np.arange(len(tasks) + 1)
    axes.grid(visible=False)
    axes.set(yticks=[], ylim=(0, len(tasks)))
    norm, colours = PowerNorm(0.5, 0, most), ["white", *colormaps["magma_r"](np.linspace(0.1, 1.0, 255))]
    return axes.pcolormesh(since[0] + edges, rows, shown, cmap=ListedColormap(colours), norm=norm, rasterized=True)


def _round_times(axes: Axes, inside: pl.DataFrame, looks: Mapping[str, Mapping[str, Any]], since: Ints) -> None:
    for policy, line in looks.items():
        mine = inside.filter(pl.col("policy") == policy)
        expected, best = (mine[name].to_numpy().reshape(-1, len(since)) for name in ("expected", ORACLES[0]))
        ratio = (expected / best).mean(axis=0)
        axes.plot(since, smooth(ratio, int((since < 0).sum())), label=policy, **line)
    axes.set(yscale="log", xlim=(since[0], since[-1] + 1))
    axes.set_title("time of a round / least possible: 1 is best", fontweight="bold")
    style.plain_numbers(axes)


def smooth(values: Floats, change: int) -> Floats:
    """The mean over each value and the ones before it, up to ``_SMOOTH`` in all, never across ``change``."""
    parts = np.split(values, [change])
    return np.concatenate([pl.Series(part).rolling_mean(_SMOOTH, min_samples=1).to_numpy() for part in parts])
