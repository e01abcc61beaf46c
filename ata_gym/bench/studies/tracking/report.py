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

from ata_gym.bench.experiment import plural
from ata_gym.bench.report import style
from ata_gym.bench.report.headline import SAID, Samples, beside, listed, with_intervals
from ata_gym.bench.report.report import Report, write
from ata_gym.bench.report.statistics import Estimate, different_pairs, estimates
from ata_gym.bench.report.summary_tables import scaled, show
from ata_gym.bench.report.table import LEFT, Table, markdown, right
from ata_gym.bench.store.folder import Folder
from ata_gym.bench.studies.tracking.experiment import ORACLES, Tracking
from ata_gym.typing import Floats, Ints

Windows = Sequence[tuple[int, int, int]]
"""The windows that ``Tracking.windows`` gives."""

WITHIN = 0.1
"""How far a policy that follows may be above the oracle's expected round time, as a share."""

BLOCK = 20
"""The rounds over which it must be so near on average: one short round is not enough."""

NEVER = -1
"""The delay of a policy that has not followed before its window ends."""

_SHORT_NAMES = {"dynamic-oracle": "oracle", "dynamic-ofta": "OFTA"}
"""Short names of the oracles."""

_HEAT_COLUMNS = 400
"""The largest number of columns of a heat map; each shows the mean over its rounds."""

_SMOOTHED_ROUNDS = 20
"""The number of rounds over which round times are smoothed."""


def report(tracking: Tracking, policies: list[str], folder: Folder) -> Report:
    """Summarise finished policies in the order given.

    Tables, delays and the picture are left in their folder.
    """
    records = folder.results(policies)
    windows = tracking.windows()
    delay_table = delays(records, windows)
    summary = summarise(records, windows)
    tables = _tables(_cells(delay_table, summary, tracking.after), tracking)
    files = write(
        folder.path,
        {"table.md": markdown(tables), "table.csv": summary, "delays.csv": delay_table},
    )
    pictures = draw(records, tracking, folder.path / "plots")
    remark = lead(delay_table, after_changes(records, windows), tracking.after)
    return Report(summary, tables, files, pictures, remark=remark)


def lead(found: pl.DataFrame, after_change: Samples, after: int) -> str:
    """Who follows a change the soonest, who as soon, and how long its rounds are meanwhile.

    The mean delay of each seed is compared; policies are tied as ``different_pairs`` says.

    Args:
        found: Delays as ``delays`` gives them; an unknown one counts as ``after`` + 1 rounds.
        after_change: Expected round times as ``after_changes`` gives them.
        after: The number of rounds in the longest window after a change.
    """
    filled = found.filter(oracle=ORACLES[0]).with_columns(pl.col("delay").fill_null(after + 1))
    mean_delays = {
        str(policy): (
            rows.group_by("seed", maintain_order=True)
            .agg(pl.col("delay").mean())["delay"]
            .to_numpy()
        )
        for (policy,), rows in filled.group_by("policy", maintain_order=True)
    }
    names = [name for name in mean_delays if name not in ORACLES] or list(mean_delays)
    policy_delays = {name: filled.filter(policy=name)["delay"].to_numpy() for name in names}
    followers = [name for name in names if np.median(policy_delays[name]) <= after]
    seeds = len(mean_delays[names[0]])
    if not followers:
        return f"No policy follows the change within {after:,} rounds in the median."
    best = min(followers, key=lambda name: float(mean_delays[name].mean()))
    different = different_pairs(mean_delays)
    tied = [name for name in names if name != best and frozenset((name, best)) not in different]
    best_delay = Estimate.of(mean_delays[best])
    count = len(names)
    if seeds == 1:
        interval = ""
    else:
        interval = f" ({max(best_delay.low, 0.0):.1f} to {best_delay.high:.1f})"
    if count > 1:
        count_text = f" of {count}"
    else:
        count_text = ""
    sentence = (
        f"{best} follows a change the soonest{count_text}, after {best_delay.mean:.1f}{interval}"
        " rounds on average"
    )
    if tied:
        sentence += f", tied with {listed(tied)}"
    late_count = count - len(followers)
    if late_count:
        sentence += f"; {late_count} of {count} do not within {after:,} rounds in the median"
    references = {name: SAID[name] for name in (ORACLES[0], "uta", "ata", "ata-icml")}
    lines = [f"{sentence}.", *(f"  {line}" for line in beside(after_change, best, references))]
    return with_intervals(lines, seeds)


def after_changes(records: pl.DataFrame, windows: Windows) -> Samples:
    """Expected round times after the changes, added up, (seeds,) for each policy.

    The oracle that knows the distributions is among them.
    """
    times_by_policy: dict[str, Floats] = {}
    for (policy,), rows in records.group_by("policy", maintain_order=True):
        sums = np.sum([_sums(rows, change, end) for _, change, end in windows], axis=0)
        times_by_policy |= {str(policy): sums[0], ORACLES[0]: sums[1]}
    return {"expected round time": times_by_policy}


def _cells(
    delay_table: pl.DataFrame, summary: pl.DataFrame, after: int
) -> dict[str, dict[str, str]]:
    """The cells of both tables: for each policy its texts by the titles of the columns."""
    cells: dict[str, dict[str, str]] = {
        policy: {} for policy in delay_table["policy"].unique(maintain_order=True)
    }
    for (policy, oracle), delay_rows in delay_table.group_by(
        "policy", "oracle", maintain_order=True
    ):
        middle, longest = waiting(delay_rows["delay"], after)
        never = f"{delay_rows['delay'].null_count()} of {len(delay_rows)}"
        texts = {"median delay": middle, "longest": longest, "never": never}
        oracle_name = _SHORT_NAMES[str(oracle)]
        cells[str(policy)] |= {f"{name}\nto {oracle_name}": text for name, text in texts.items()}
    for (quantity,), quantity_rows in summary.group_by("quantity", maintain_order=True):
        part, _, oracle = str(quantity).partition("/")
        if oracle:
            title = f"{part}\n/ {_SHORT_NAMES[oracle]}"
            unit = 1.0
        else:
            title, unit = scaled(part, quantity_rows)
            title += "\nof a change"
        for policy, mean, high in quantity_rows.select("policy", "mean", "high").rows():
            cells[policy][title] = show(mean, high, unit)
    return cells


def _tables(cells: Mapping[str, Mapping[str, str]], tracking: Tracking) -> list[Table]:
    if len(tracking.changed_at) > 1:
        changes = f"{len(tracking.changed_at)} changes, the first"
    else:
        changes = "a change"
    if tracking.uneven:
        or_fewer = ", or fewer where the next one is nearer"
        at_most = " at most"
    else:
        or_fewer = ""
        at_most = ""
    delay_title = (
        f"{tracking.about}\n{changes} after {tracking.changed_at[0]:,} rounds,"
        f" {plural(tracking.seeds, 'seed')}\ndelay: rounds until the expected round time is within"
        f" {WITHIN:.0%} of the oracle's (or OFTA's),\non average over {BLOCK} rounds; never: not"
        f" within the {tracking.after:,} rounds after the change{or_fewer}"
    )
    cost_title = (
        f"expected round times of {tracking.before:,} rounds before a change and {tracking.after:,}"
        f" after it{at_most},\ndivided by those of the oracle that knows the"
        " distributions, and of the one that knows the means (OFTA)"
    )
    tables = []
    for about, shows_delays in ((delay_title, True), (cost_title, False)):
        titles = [
            title for title in next(iter(cells.values())) if ("\nto " in title) == shows_delays
        ]
        rows = [(name, *(row[title] for title in titles)) for name, row in cells.items()]
        tables.append(Table(about, {"policy": LEFT, **right(titles)}, rows))
    return tables


def waiting(delays: pl.Series, most: int) -> tuple[str, str]:
    """The median delay and the longest one, in words; null is longer than ``most`` rounds.

    Example:
        >>> waiting(pl.Series([3, 5, 8]), 100), waiting(pl.Series([3, None, None]), 100)
        (('5', '8'), ('> 100', '> 100'))
    """
    rounds = np.sort(delays.fill_null(most + 1).to_numpy())
    return _rounds_in_words(np.median(rounds), most), _rounds_in_words(rounds[-1], most)


def _rounds_in_words(rounds: float, longest: int) -> str:
    if rounds > longest:
        return f"> {longest:,}"
    return f"{rounds:,.0f}"


def delay(expected: Floats, best: Floats, block: int = BLOCK) -> Ints:
    """The number of rounds from a change until expected round times are near the oracle's.

    It is the least d such that over the rounds d, d + 1, ..., d + block - 1 after the change
    (fewer, where the window is shorter) the mean of expected / best is at most 1 + ``WITHIN``.

    Args:
        expected: Expected round times of the policy in the rounds after the change, (..., K).
        best: Expected round times of the oracle in them, (..., K).
        block: The number of rounds over which the mean is taken.

    Returns:
        The delays d, shape (...,); ``NEVER`` where there is no such d.

    Example:
        >>> delay(np.array([9.0, 1.0, 9.0, 1.0, 1.0, 1.0]), np.ones(6), block=3)
        array(3)
        >>> delay(np.array([9.0, 1.0, 9.0]), np.ones(3), block=3)
        array(-1)
    """
    # recorded times may be 0, and 0 / 0 counts as 1
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(expected == best, 1.0, expected / best)
    rounds = ratio.shape[-1]
    block = min(block, rounds)
    starts = range(rounds - block + 1)
    means = [ratio[..., d : d + block].mean(axis=-1) for d in starts]
    near = np.stack([mean <= 1 + WITHIN for mean in means], axis=-1)
    # argmax of truth values is the first that is true
    return np.where(near.any(axis=-1), near.argmax(axis=-1), NEVER)


def delays(records: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """The delay of each policy after each change, by seed and oracle.

    Returns:
        Columns policy, seed, change (the number of rounds before it), oracle, delay (null: never).
    """
    rows = []
    for (policy,), policy_rows in records.group_by("policy", maintain_order=True):
        for _, change, end in windows:
            after = _between(policy_rows, change, end)
            seeds = after["seed"].unique(maintain_order=True).to_list()
            for oracle in ORACLES:
                expected, best = (
                    after[name].to_numpy().reshape(len(seeds), -1) for name in ("expected", oracle)
                )
                waits = delay(expected, best).tolist()
                rows += [
                    (policy, seed, change, oracle, d) for seed, d in zip(seeds, waits, strict=True)
                ]
    table = pl.DataFrame(rows, ["policy", "seed", "change", "oracle", "delay"], orient="row")
    return table.with_columns(delay=pl.when(pl.col("delay") != NEVER).then("delay"))


def summarise(records: pl.DataFrame, windows: Windows) -> pl.DataFrame:
    """What the changes have in common: means over seeds, and their 95 % intervals.

    The quantities are ``before/<oracle>`` and ``after/<oracle>`` (the expected round times in all
    windows, added up, relative to the oracle's) and ``regret`` (proxy regret from a change to the
    end of its window, mean over changes).

    Returns:
        Columns policy, quantity, mean, low, high.
    """
    before = [(low, change) for low, change, _ in windows]
    after = [(change, end) for _, change, end in windows]
    rows: list[tuple[object, ...]] = []
    for (policy,), policy_rows in records.group_by("policy", maintain_order=True):
        for part, rounds in (("before", before), ("after", after)):
            sums = np.sum([_sums(policy_rows, low, end) for low, end in rounds], axis=0)
            ratios = [Estimate.of_ratio(sums[0], best) for best in sums[1:]]
            rows += [
                (policy, f"{part}/{oracle}", ratio)
                for oracle, ratio in zip(ORACLES, ratios, strict=True)
            ]
        # by round, the regret of each seed since the first round of the episode
        regret = {
            n: round_rows["regret"].to_numpy()
            for (n,), round_rows in policy_rows.group_by("round", maintain_order=True)
        }
        regrets = [regret[end] - regret[change] for change, end in after]
        rows.append((policy, "regret", Estimate.of(np.mean(regrets, axis=0))))
    return estimates(rows, ["policy", "quantity"])


def _between(records: pl.DataFrame, low: int, end: int) -> pl.DataFrame:
    """The rounds after ``low`` up to ``end``."""
    return records.filter((pl.col("round") > low) & (pl.col("round") <= end))


def _sums(records: pl.DataFrame, low: int, end: int) -> Floats:
    """Expected round times of the policy and the oracles, added up between: (3, seeds)."""
    by_seed = _between(records, low, end).group_by("seed", maintain_order=True)
    return by_seed.agg(pl.col("expected", *ORACLES).sum()).drop("seed").to_numpy().T


def draw(records: pl.DataFrame, tracking: Tracking, folder: Path) -> list[Path]:
    """Draw the first change: who works in each policy, and the round times below.

    The tasks of each worker are of the first seed.
    """
    low, change, end = tracking.windows()[0]
    inside = _between(records, low, end)
    policies = records["policy"].unique(maintain_order=True).to_list()
    slowest_last = np.argsort(means_before(tracking), kind="stable")
    since = np.arange(low - change, end - change)
    with style.figure(9.0, 1.25 * len(policies) + 2.8) as picture:
        heights = [1.0] * len(policies) + [1.5]
        axes = picture.subplots(len(policies) + 1, 1, sharex=True, height_ratios=heights)
        # few cells have more tasks than the largest shade
        most_tasks = max(2, int(inside["tasks"].list.max().quantile(0.99) or 0))
        for panel, policy in zip(axes, policies, strict=False):
            policy_rows = inside.filter(
                (pl.col("policy") == policy) & (pl.col("seed") == tracking.seed)
            )
            tasks = np.array(policy_rows["tasks"].to_list()).T[slowest_last]
            image = _heat(panel, since, tasks, most_tasks)
            panel.set_title(policy, fontweight="bold")
        _round_times(axes[-1], inside, style.lines(policies), since)
        for panel in axes:
            panel.axvline(0, color="black", linewidth=1.0, linestyle=(0, (4, 3)))
        picture.supylabel(
            "who works: a line for each worker, the fastest before the change at the bottom",
            fontsize=10,
        )
        picture.colorbar(
            image,
            ax=axes[:-1],
            label="tasks of a worker in a round",
            fraction=0.03,
            pad=0.01,
        )
        placement = {
            "xycoords": ("data", "axes fraction"),
            "textcoords": "offset points",
            "fontsize": 9,
        }
        axes[0].annotate("the workers change", (0, 1.0), (4, 2), **placement)
        axes[-1].set(xlabel=f"rounds since the change, before which {change:,} were played")
        picture.legend(loc="outside lower center", ncols=4, handlelength=2.6)
        seeds_text = (
            f"tasks of seed {tracking.seed}, round times of {plural(tracking.seeds, 'seed')}"
        )
        title = f"Who notices that the workers have changed?\n{tracking.about}; {seeds_text}"
        return style.save(picture, folder / "change", title)


def means_before(tracking: Tracking) -> Floats:
    """Mean task times of the first seed's workers before the first change, shape (n,).

    They are means over the rounds of the window before it.
    """
    low, change, _ = tracking.windows()[0]
    envs = tracking.make_envs("ata_gym/TaskAllocation-v0", rows=1)
    envs.reset(seed=tracking.seed)
    # how workers change does not depend on the allocation: all tasks go to the first worker
    allocation = tracking.scenario.budget * np.eye(1, tracking.scenario.pool.n, dtype=np.int64)
    total = np.zeros(tracking.scenario.pool.n)
    for k in range(change):
        if k >= low:
            total += envs.unwrapped.means()[0]  # type: ignore[attr-defined]
        envs.step(allocation)
    return total / (change - low)


def _heat(axes: Axes, since: Ints, tasks: NDArray[np.int64], most_tasks: int) -> Any:
    """Draw tasks, (n, rounds), at the rounds ``since`` the change; ``most_tasks`` is darkest."""
    edges = np.unique(np.linspace(0, tasks.shape[1], _HEAT_COLUMNS + 1).astype(np.int64))
    column_means = np.add.reduceat(tasks, edges[:-1], axis=1) / np.diff(edges)
    rows = np.arange(len(tasks) + 1)
    axes.grid(visible=False)
    axes.set(yticks=[], ylim=(0, len(tasks)))
    norm = PowerNorm(0.5, 0, most_tasks)
    colours = ["white", *colormaps["magma_r"](np.linspace(0.1, 1.0, 255))]
    return axes.pcolormesh(
        since[0] + edges,
        rows,
        column_means,
        cmap=ListedColormap(colours),
        norm=norm,
        rasterized=True,
    )


def _round_times(
    axes: Axes,
    inside: pl.DataFrame,
    looks: Mapping[str, Mapping[str, Any]],
    since: Ints,
) -> None:
    """Draw each policy's expected round times over the oracle's, means over seeds, smoothed."""
    for policy, line in looks.items():
        policy_rows = inside.filter(pl.col("policy") == policy)
        expected, best = (
            policy_rows[name].to_numpy().reshape(-1, len(since))
            for name in ("expected", ORACLES[0])
        )
        ratio = (expected / best).mean(axis=0)
        axes.plot(since, smooth(ratio, int((since < 0).sum())), label=policy, **line)
    axes.set(yscale="log", xlim=(since[0], since[-1] + 1))
    axes.set_title("time of a round / least possible: 1 is best", fontweight="bold")
    style.plain_numbers(axes)


def smooth(values: Floats, change: int) -> Floats:
    """Means over each value and the values before it, up to ``_SMOOTHED_ROUNDS`` in all.

    No mean is taken across the index ``change``. The shape of both is (rounds,).
    """
    parts = np.split(values, [change])
    return np.concatenate(
        [
            pl.Series(part).rolling_mean(_SMOOTHED_ROUNDS, min_samples=1).to_numpy()
            for part in parts
        ],
    )
