"""What a pool accepts, and the messages for anything else."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ata_gym.pools.distributions import NO_LIMIT, Distributions, Moments, offsets
from ata_gym.pools.families import CODES, FAMILIES, RECORDED
from ata_gym.typing import Floats
from ata_gym.utils.validation import short

_ENDS = {"wrap": 0, "truncate": 1}
"""The codes of the ends of a record."""


def numbers(name: str, values: ArrayLike, *, positive: bool = False) -> Floats:
    """Turn finite numbers (positive ones, if asked) into floats of shape () or (n,)."""
    array = as_array(values)
    if array.dtype.kind not in "iuf" or array.ndim > 1:
        raise ValueError(f"{name} must be a number or one number per worker, got {short(values)}")
    array = array.astype(np.float64)
    invalid = ~np.isfinite(array) | ((array <= 0) & positive)
    if invalid.any():
        if positive:
            requirement = "positive and finite"
        else:
            requirement = "finite"
        raise ValueError(f"{name} must be {requirement}, got {_first_invalid(array, invalid)}")
    return array


def as_codes(name: str, values: str | Sequence[str], codes: Mapping[str, int]) -> NDArray[np.int64]:
    """Turn the values of an argument into their codes, shape () or (n,)."""
    value_list: Sequence[str]
    if isinstance(values, str):
        value_list = [values]
    else:
        value_list = values
    try:
        value_codes = np.array([codes[value] for value in value_list], dtype=np.int64)
    except (TypeError, KeyError):
        raise ValueError(f"{name} must be one of {', '.join(codes)}, got {short(values)}") from None
    if isinstance(values, str):
        return value_codes.reshape(())
    return value_codes


def checked_costs(unit_costs: ArrayLike | None, n: int) -> Floats:
    """The cost of a unit of each worker's time in worker time, shape (n,); None means 1.

    Raises:
        ValueError: If they are not n numbers of at least 0.
    """
    if unit_costs is None:
        costs = np.ones(n)
    else:
        costs = numbers("unit_costs", unit_costs)
    if costs.shape != (n,) or (costs < 0).any():
        raise ValueError(
            f"unit_costs must be {n} numbers of at least 0, one for each worker, not"
            f" {short(unit_costs)}",
        )
    return costs


def common_length(columns: Mapping[str, NDArray[Any]], times: int | None = None) -> int:
    """The number of workers.

    Args:
        columns: Arrays of shape () or (length,), by name.
        times: The number of records, if any are given.

    Raises:
        ValueError: If lengths differ, or there is no worker.
    """
    lengths = {name: len(column) for name, column in columns.items() if column.ndim}
    if times is not None:
        lengths["times"] = times
    if 0 in lengths.values():
        empty = [name for name, length in lengths.items() if length == 0]
        raise ValueError(f"a pool needs at least one worker, but {' and '.join(empty)} is empty")
    n = max(lengths.values(), default=1)
    if any(length not in (1, n) for length in lengths.values()):
        length_text = ", ".join(f"{name} {length}" for name, length in lengths.items())
        raise ValueError(
            f"the arguments must have one entry, or one per worker; their lengths are"
            f" {length_text}",
        )
    return n


def per_worker(times: Iterable[ArrayLike | None]) -> list[ArrayLike | None]:
    """List the records, one entry per worker."""
    try:
        if isinstance(times, str):
            return []
        return list(times)
    except TypeError:
        raise ValueError(
            f"times must hold one sequence of numbers per worker, got {short(times)}",
        ) from None


def records(times: Sequence[ArrayLike | None], recorded: NDArray[np.bool_]) -> list[Floats]:
    """Turn one record per worker into arrays, empty for workers that replay no trace."""
    if len(times) != len(recorded):
        raise ValueError(
            f"times must hold one record per worker: {len(recorded)}, got {len(times)}",
        )
    return [_record(i, record, bool(recorded[i])) for i, record in enumerate(times)]


def _record(i: int, values: ArrayLike | None, recorded: bool) -> Floats:
    if values is None and not recorded:
        return np.zeros(0)
    if values is None:
        values = []
    record = as_array(values)
    if record.ndim != 1 or (record.size and record.dtype.kind not in "iuf"):
        raise ValueError(f"times of worker {i} must be a sequence of numbers, got {short(values)}")
    if recorded and not record.size:
        raise ValueError(
            f"worker {i} replays a trace and needs at least one recorded time, got none",
        )
    if record.size and not recorded:
        raise ValueError(
            f"worker {i} replays no trace, but {record.size} recorded times are given for it",
        )
    # Adding 0 turns -0.0 into 0.0, as for the parameters.
    record = record.astype(np.float64) + 0
    invalid = ~(np.isfinite(record) & (record >= 0))
    if invalid.any():
        raise ValueError(
            f"times of worker {i} must be finite and not negative, got"
            f" {_first_invalid(record, invalid)}",
        )
    if recorded and not record.any():
        raise ValueError(f"times of worker {i} are all 0: a worker needs a positive mean")
    return record


def positive_scales(scales: Floats, may_be_0: NDArray[np.bool_] | bool = False) -> Floats:
    """The scales of shape () or (n,), which must be positive, or at least 0 where they may be 0."""
    invalid = (scales < 0) | ((scales == 0) & ~np.asarray(may_be_0))
    if invalid.any():
        invalid = np.broadcast_to(invalid, np.broadcast_shapes(scales.shape, invalid.shape))
        values = np.broadcast_to(scales, invalid.shape)
        raise ValueError(
            f"scale must be positive and finite, got {_first_invalid(values, invalid)}"
        )
    return scales


def check_distributions(
    distributions: Distributions, moments: Moments, *, zeros: bool = False
) -> None:
    """Refuse distributions with unused shapes, negative times, or moments beyond floating point.

    Times that are all 0 are refused, too, unless ``zeros``.
    """
    mean, sd, lowest = moments
    for code, family in enumerate(FAMILIES):
        members = distributions.family == code
        if not family.shaped:
            _refuse(
                members & (distributions.shape != 1),
                f"{family.name} has no shape, leave it at 1; got",
                distributions.shape,
            )
        overflow = ~np.isfinite(mean) & (distributions.shape > family.infinite_mean)
        overflow |= ~np.isfinite(sd) & (distributions.shape > family.infinite_sd)
        _refuse(
            members & overflow,
            f"{family.name} has moments beyond floating point with shape",
            distributions.shape,
        )
    _refuse(lowest < 0, "shift + scale * Z must never be negative; it goes down to", lowest)
    if not zeros:
        _refuse(mean <= 0, "the mean time must be positive, got", mean)


def distributions_of(
    family: str | Sequence[str],
    *,
    shift: ArrayLike = 0.0,
    scale: ArrayLike = 1.0,
    shape: ArrayLike = 1.0,
    times: Sequence[ArrayLike | None] | None = None,
    end: str | Sequence[str] = "wrap",
    zeros: bool = False,
) -> Distributions:
    """The distributions that the arguments of `Pool` describe.

    Their times are checked by ``check_distributions``.

    Args:
        family: As for `Pool`, and so are ``shift``, ``scale``, ``shape``, ``times`` and ``end``.
        zeros: Whether a worker may have times that are all 0, as latencies may: it is deterministic
            and has scale 0.

    Raises:
        ValueError: As for `Pool`.
    """
    codes = as_codes("family", family, CODES)
    scales = numbers("scale", scale)
    columns: dict[str, NDArray[Any]] = {
        "family": codes,
        "shift": numbers("shift", shift),
        "scale": scales,
        "shape": numbers("shape", shape, positive=True),
        "end": as_codes("end", end, _ENDS),
    }
    if times is None:
        worker_times = None
        count = None
    else:
        worker_times = per_worker(times)
        count = len(worker_times)
    n = common_length(columns, count)
    if zeros:
        columns["scale"] = positive_scales(scales, codes == CODES["deterministic"])
    else:
        columns["scale"] = positive_scales(scales)
    # Adding 0 copies, and turns -0.0 into 0.0: equal pools are equal byte by byte.
    codes, shifts, scales, shapes, ends = (
        np.broadcast_to(column, n) + 0 for column in columns.values()
    )
    recorded = np.isin(codes, RECORDED)
    if worker_times is None:
        worker_times = [None] * n
    record_list = records(worker_times, recorded)
    length = np.array([max(1, len(record)) for record in record_list], dtype=np.int64)
    limit = np.where(recorded & (ends == _ENDS["truncate"]), length, NO_LIMIT)
    if recorded.any():
        table = np.concatenate(record_list)
    else:
        table = np.zeros(1)
    return Distributions(
        codes,
        shifts,
        scales,
        shapes,
        table,
        offsets(codes, length),
        length,
        limit,
    )


def as_array(values: ArrayLike) -> NDArray[Any]:
    """The values as an array; None where rows are of unequal lengths."""
    try:
        return np.asarray(values)
    except ValueError:
        return np.array(None)


def _refuse(invalid: NDArray[np.bool_], sentence: str, values: Floats) -> None:
    if invalid.any():
        raise ValueError(f"{sentence} {_first_invalid(values, invalid)}")


def _first_invalid(values: NDArray[np.generic], invalid: NDArray[np.bool_]) -> str:
    """The first bad value, and its worker where there is more than one."""
    if values.ndim == 0:
        return str(values.item())
    place = int(np.argmax(invalid))
    return f"{values[place].item()} for worker {place}"
