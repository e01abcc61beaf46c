"""What a pool accepts, and the sentences for what it does not."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.pools.distributions import Distributions, Moments
from ata_gym.pools.families import FAMILIES
from ata_gym.typing import Floats
from ata_gym.utils.validation import short


def numbers(name: str, values: ArrayLike, *, positive: bool = False) -> Floats:
    """Turn finite numbers (positive ones, if asked) into floats of shape () or (n,)."""
    array = as_array(values)
    if array.dtype.kind not in "iuf" or array.ndim > 1:
        raise ValueError(f"{name} must be a number or one number per worker, got {short(values)}")
    array = array.astype(np.float64)
    bad = ~np.isfinite(array) | ((array <= 0) & positive)
    if bad.any():
        wanted = "positive and finite" if positive else "finite"
        raise ValueError(f"{name} must be {wanted}, got {_first(array, bad)}")
    return array


def words(name: str, values: str | Sequence[str], codes: Mapping[str, int]) -> NDArray[np.int64]:
    """Turn words into their codes, shape () or (n,)."""
    listed: Sequence[str] = [values] if isinstance(values, str) else values
    try:
        found = np.array([codes[word] for word in listed], dtype=np.int64)
    except (TypeError, KeyError):
        raise ValueError(f"{name} must be one of {', '.join(codes)}, got {short(values)}") from None
    return found.reshape(()) if isinstance(values, str) else found


def checked_costs(unit_costs: ArrayLike | None, n: int) -> Floats:
    """What a unit of the time of each of n workers counts for in worker time, (n,); None: 1."""
    costs = np.ones(n) if unit_costs is None else numbers("unit_costs", unit_costs)
    if costs.shape != (n,) or (costs < 0).any():
        raise ValueError(f"unit_costs must be {n} numbers of at least 0, one for each worker, not {short(unit_costs)}")
    return costs


def common_length(columns: Mapping[str, NDArray[Any]], times: int | None = None) -> int:
    """Give the number of workers from columns of shape () or (length,), and from the number of records."""
    known = {name: len(column) for name, column in columns.items() if column.ndim}
    known |= {} if times is None else {"times": times}
    if 0 in known.values():
        empty = [name for name, length in known.items() if length == 0]
        raise ValueError(f"a pool needs at least one worker, but {' and '.join(empty)} is empty")
    n = max(known.values(), default=1)
    if any(length not in (1, n) for length in known.values()):
        listed = ", ".join(f"{name} {length}" for name, length in known.items())
        raise ValueError(f"the arguments must have one entry, or one per worker; their lengths are {listed}")
    return n


def per_worker(times: Iterable[ArrayLike | None]) -> list[ArrayLike | None]:
    """List the records, one entry per worker."""
    try:
        return [] if isinstance(times, str) else list(times)
    except TypeError:
        raise ValueError(f"times must hold one sequence of numbers per worker, got {short(times)}") from None


def records(times: Sequence[ArrayLike | None], recorded: NDArray[np.bool_]) -> list[Floats]:
    """Turn one record per worker into arrays, empty for workers of other families."""
    if len(times) != len(recorded):
        raise ValueError(f"times must hold one record per worker: {len(recorded)}, got {len(times)}")
    return [_record(i, record, bool(recorded[i])) for i, record in enumerate(times)]


def _record(i: int, values: ArrayLike | None, recorded: bool) -> Floats:
    if values is None and not recorded:
        return np.zeros(0)
    record = as_array([] if values is None else values)
    if record.ndim != 1 or (record.size and record.dtype.kind not in "iuf"):
        raise ValueError(f"times of worker {i} must be a sequence of numbers, got {short(values)}")
    if recorded and not record.size:
        raise ValueError(f"worker {i} replays a trace and needs at least one recorded time, got none")
    if record.size and not recorded:
        raise ValueError(f"worker {i} replays no trace, but {record.size} recorded times are given for it")
    record = record.astype(np.float64) + 0  # no -0.0, as in the parameters
    bad = ~(np.isfinite(record) & (record >= 0))
    if bad.any():
        raise ValueError(f"times of worker {i} must be finite and not negative, got {_first(record, bad)}")
    if recorded and not record.any():
        raise ValueError(f"times of worker {i} are all 0: a worker needs a positive mean")
    return record


def distributions(found: Distributions, moments: Moments) -> None:
    """Refuse distributions with shapes of no use, negative times, or moments beyond floating point."""
    mean, sd, lowest = moments
    for code, family in enumerate(FAMILIES):
        mine = found.family == code
        if not family.shaped:
            _refuse(mine & (found.shape != 1), f"{family.name} has no shape, leave it at 1; got", found.shape)
        overflow = ~np.isfinite(mean) & (found.shape > family.infinite[0])
        overflow |= ~np.isfinite(sd) & (found.shape > family.infinite[1])
        _refuse(mine & overflow, f"{family.name} has moments beyond floating point with shape", found.shape)
    _refuse(lowest < 0, "shift + scale * Z must never be negative; it goes down to", lowest)
    _refuse(mean <= 0, "the mean time must be positive, got", mean)


def as_array(values: ArrayLike) -> NDArray[Any]:
    """The values as an array; None where rows are of unequal lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.array(None)


def _refuse(bad: NDArray[np.bool_], sentence: str, values: Floats) -> None:
    if bad.any():
        raise ValueError(f"{sentence} {_first(values, bad)}")


def _first(values: NDArray[np.generic], bad: NDArray[np.bool_]) -> str:
    if values.ndim == 0:
        return str(values.item())
    place = int(np.argmax(bad))
    return f"{values[place].item()} for worker {place}"
