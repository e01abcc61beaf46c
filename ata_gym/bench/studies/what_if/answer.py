"""The sentences of the answer: who was waited for, whether another way is worth it, the cost."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ata_gym.bench.report.headline import listed
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.store.note import Note
from ata_gym.bench.studies.what_if.off_policy.answers import REPLAY
from ata_gym.bench.studies.what_if.waiting import worst_first
from ata_gym.bench.studies.what_if.ways import LEARNS

LEAST_STEPS = 10
"""The smallest number of steps of a log over which an interval is taken."""

_LEAST_SAVING = 0.02
"""The part of the whole below which a change is not worth it."""

_LEAST_LEAD = 2.0
"""By how much more was lost to a worker that stands out than to the others, on average."""

_LEAST_OF_WAITING = 0.02
"""The time lost to a worker that stands out, as a part of all waiting, at least: among hundreds of
equal workers the worst has by chance more than twice the average."""

_LEAST_ALONE = 0.5
"""The time lost to single workers, as a part of all waiting, below which several were slow."""

_LIKEWISE = 0.5
"""The loss of a worker that is named beside the worst one, as a part of the loss of that one."""

_MOST_NAMED = 3
"""The largest number of workers that are named beside the worst one."""

_ONLY_COMPUTE = (
    "Communication is not in the log: percentages are of the time without it, and of whole steps"
    " they are smaller."
)


def whole(note: Note) -> str:
    """Return what percentages are of."""
    if note["rest"] is None:
        return "the time without communication"
    return "the runtime"


def remarks(note: Note) -> list[str]:
    """Return the remarks on a log, and what is not in it, a line each."""
    if note["rest"] is None:
        return [*note["remarks"], _ONLY_COMPUTE]
    return list(note["remarks"])


def duration(value: float, unit: str) -> str:
    """Return a time in milliseconds, or as a number where its unit is not known.

    Example:
        >>> duration(0.0451, "s"), duration(0.00012, "s"), duration(12.0, "s"), duration(2.5, "")
        ('45.1 ms', '0.12 ms', '12,000 ms', '2.5')
    """
    if unit != "s":
        return f"{value:.3g}"
    milliseconds = 1e3 * value
    if milliseconds >= 100:
        return f"{milliseconds:,.0f} ms"
    return f"{milliseconds:.3g} ms"


def aligned(value: float, note: Note) -> str:
    """Return a time, in ms where its unit is known, with the decimals that steps of a log need."""
    scale = 1e3 if note["unit"] == "s" else 1.0
    step = scale * note["runtime"] / note["steps"]
    decimals = int(np.clip(3 - np.floor(np.log10(step)), 0, 9))
    return f"{scale * value:,.{decimals}f}"


def lost_per_step(worker: Mapping[str, Any], note: Note) -> float:
    """Return the time of a step that was lost to a worker, on average."""
    return float(worker["lost"]) * float(note["runtime"]) / int(note["steps"])


def half_text(saving: Estimate) -> str:
    """Return half the width of an interval in points; empty where there is none.

    Example:
        >>> half_text(Estimate(0.4, 0.35, 0.45)), half_text(Estimate(0.4, -1.9, 2.7))
        ('5.0', 'over 100')
    """
    half = saving.high - saving.mean
    if np.isnan(half):
        return ""
    # nothing follows from it, and no way saves more than all
    if half > 1.0:
        return "over 100"
    return f"{100 * half:.1f}"


def interval_text(column: str, saving: Estimate) -> str:
    """Return a doubly robust estimate with half the width of its interval, if it has one.

    Args:
        column: The column of costs: of round_time what is saved is shown, in percent, and of
            worker_time what is left, as a part of the logged one.
        saving: The part that is saved.

    Example:
        >>> saving = Estimate(0.4, 0.35, 0.45)
        >>> interval_text("round_time", saving), interval_text("worker_time", saving)
        ('40.0 ± 5.0', '0.600 ± 0.050')
    """
    half = saving.high - saving.mean
    if column == "round_time":
        return " ± ".join(filter(None, [f"{100 * saving.mean:z.1f}", half_text(saving)]))
    texts = [f"{1.0 - saving.mean:.3f}"]
    if not np.isnan(half):
        texts.append(f"{half:.3f}")
    return " ± ".join(texts)


def doubt(policy: str, of: str, reason: str) -> str:
    """Return what does not follow for a policy, and why, in a sentence.

    Args:
        policy: The policy.
        of: Of what: ``REPLAY``, or the name of an estimate.
        reason: Why, as a clause.
    """
    if of == REPLAY:
        return f"The log cannot bear the answer for {policy}: {reason}."
    noun = {"round_time": "runtime", "worker_time": "worker time"}[of]
    return f"There is no doubly robust {noun} of {policy}: {reason}."


def who(note: Note) -> str:
    """Return who was waited for, when, and how much that cost, in a sentence."""
    worst, *others = worst_first(note)
    if not worst["lost"] > 0:
        # to rounding
        if note["idle"] > 1e-9:
            return "No worker was waited for alone: in each step several ended last together."
        return "Nobody was waited for: in each step all ended together."
    loss = (
        f"last in {100 * worst['last']:.0f} % of steps,"
        f" {duration(lost_per_step(worst, note), note['unit'])} of each step of"
        f" {duration(note['runtime'] / note['steps'], note['unit'])}"
        f" ({100 * worst['lost']:.1f} %)"
    )
    together = ""
    if sum(worker["lost"] for worker in note["waited_for"]) < _LEAST_ALONE * note["idle"]:
        together = " Most waiting was for several workers at once: compare their mean times."
    of_others = float(np.mean([worker["lost"] for worker in others]))
    if worst["lost"] < max(_LEAST_LEAD * of_others, _LEAST_OF_WAITING * note["idle"]):
        name = _named(worst["worker"])
        return f"No worker stands out: {name} was waited for longest, {loss}.{together}"
    if worst["when"] == "all along":
        loss += ", all along"
    elif worst["when"].isdecimal():
        loss += f", most in step {worst['when']}"
    elif worst["when"]:
        loss += f", most in steps {worst['when']}"
    name = _named(worst["worker"])
    if name != worst["worker"]:
        name = name.capitalize()
    return f"{name} was waited for: {loss}.{_likewise(worst, others)}{together}"


def _likewise(worst: Mapping[str, Any], others: Sequence[Mapping[str, Any]]) -> str:
    """The sentence on workers that were waited for nearly as long as the worst one, if any."""
    names = [
        f"{_named(worker['worker'])} ({100 * worker['lost']:.1f} %)"
        for worker in others[:_MOST_NAMED]
        if worker["lost"] >= _LIKEWISE * worst["lost"]
    ]
    if len(names) > 1:
        return f" So were {listed(names)}."
    if names:
        return f" So was {names[0]}."
    return ""


def _named(worker: str) -> str:
    """A worker in a sentence."""
    if worker.isdecimal():
        return f"rank {worker}"
    return worker


def cost(note: Note) -> str:
    """Return what waiting cost, and what no split can go below, in a sentence."""
    return (
        f"Workers waited in {100 * note['idle']:.1f} % of {whole(note)}; a perfect split of each"
        f" step, known beforehand, would save {100 * note['perfect']:.1f} %."
    )


def verdict(
    savings: Mapping[str, Estimate],
    least_savings: Mapping[str, float],
    kinds: Mapping[str, str],
    steps: Mapping[str, int],
    note: Note,
    unbearable: Mapping[str, str],
) -> str:
    """Return whether another way is worth it, in a sentence.

    Args:
        savings: The part of the whole that each way saves.
        least_savings: The same in the part of the log in which it saves least; NaN if not known.
        kinds: The kind of each way.
        steps: The number of steps that each way has played.
        note: The note of the log.
        unbearable: Why the log cannot bear the answer for a way, for ways of which it cannot.
    """
    if note["doubt"]:
        return f"This log cannot say: {note['doubt']}"
    # the first policy speaks for all; without policies the best fixed split does
    name = next((name for name in savings if kinds[name] == LEARNS), next(iter(savings)))
    if name in unbearable:
        return f"This log cannot say what {name} would save: {unbearable[name]}."
    saving = savings[name]
    least_saving = least_savings[name]
    half = saving.high - saving.mean
    part = ""
    if steps[name] < note["steps"]:
        part = f" in the first {steps[name]:,} steps"
    if kinds[name] != LEARNS:
        # no policy is played, and what was best is known afterwards only
        name = f"{name} ({kinds[name]})"
    clause = (
        f"{name} would save {100 * saving.mean:z.1f} % (± {half_text(saving)}) of {whole(note)}"
        f"{part} at price 0"
    )
    if note["perfect"] < _LEAST_SAVING:
        reason = ""
        # of the time that shares take themselves, too
        if note["perfect"] * note["runtime"] < _LEAST_SAVING * _computing(note):
            reason = "workers are near equal; "
        return (
            f"Not worth it: {reason}a perfect split of each step would save"
            f" {100 * note['perfect']:.1f} % of {whole(note)}."
        )
    if np.isnan(half):
        return (
            f"The log is too short to say, since an interval needs {LEAST_STEPS} steps: {name}"
            f" would save {100 * saving.mean:z.1f} % of {whole(note)}{part}."
        )
    if saving.low > _LEAST_SAVING:
        return f"Worth it: {clause}, by other shares alone."
    if least_saving > _LEAST_SAVING:
        return (
            f"Worth it: {clause}, and at least {100 * least_saving:.1f} % in each of ten"
            " parts of the log, by other shares alone."
        )
    if saving.high < _LEAST_SAVING:
        if "race" in savings and savings["race"].low > _LEAST_SAVING:
            race_text = (
                " A race, which cancels what is late, would save"
                f" {100 * savings['race'].mean:.1f} %."
            )
        else:
            race_text = ""
        return f"Not worth it: {clause}, by other shares alone.{race_text}"
    return (
        f"Nothing follows: {clause}, and less than {100 * _LEAST_SAVING:g} % would not be worth it."
    )


def _computing(note: Note) -> float:
    """The part of the runtime in which shares were computed."""
    return float(note["runtime"]) - float(note["rest"] or 0.0)
