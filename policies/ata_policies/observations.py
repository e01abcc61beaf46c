"""The check of what ``predict`` is given: once, before anything is learned from it."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ata_gym.typing import Bits, Floats, Ints
from ata_gym.utils.compiled import gufunc

Observation = dict[str, NDArray[Any]]

LONGEST = 1e300
"""Longer times count as this one, so that their sums stay finite."""

_WHOLE, _REAL = "iub", "iuf"
"""The kinds of dtype of whole and of real numbers."""
_ROUND_FIELDS = 3
"""Fields of an observation whose steps are rounds."""


def checked_observation(observation: Observation, n: int, budget: int, env_id: str) -> Observation:
    """The observation as a batch of rows, in arrays of the expected types; other keys are passed on with a row axis.

    Parameters
    ----------
    observation
        ``worker`` and ``duration`` of shape (R,) or (E, R), ``elapsed`` of shape (n,) or (E, n), and for dispatch
        ``missing`` (1,), ``started``, ``running`` and ``age`` (n,), likewise.
    n, budget
        Workers, and results B that a round needs.
    env_id
        The env that it comes from.

    Raises
    ------
    ValueError
        If a key is missing, a shape or type is another, a worker is not from -1 to n - 1, or a time is negative, NaN
        or infinite. Nothing has been learned from it then.

    Examples
    --------
    >>> seen = {"worker": np.array([2]), "duration": np.array([1.0]), "elapsed": np.zeros(2)}
    >>> checked_observation(seen, n=2, budget=1, env_id="ata_gym/TaskRace-v0")
    Traceback (most recent call last):
        ...
    ValueError: observation["worker"] must be from -1 (no result) to 1, the last of 2 workers, not 2
    """
    fields = _fields(n, budget, env_id)
    seen: Observation = {}
    leading: tuple[int, ...] = ()
    for name, width, kinds, dtype in fields:
        try:
            field = np.asarray(observation[name])
        except KeyError:
            wanted = ", ".join(one for one, *_ in fields)
            raise ValueError(f"the observation lacks {name}; the env of {env_id} gives {wanted}") from None
        except (TypeError, ValueError, IndexError) as error:
            wanted = ", ".join(one for one, *_ in fields)
            raise ValueError(f"an observation is a dict of arrays with the keys {wanted}: {error}") from None
        if name == "worker":
            leading = field.shape[:-1]
            if len(leading) > 1:
                raise ValueError(f'observation["worker"] must have shape (R,) or (E, R), not {field.shape}')
        if field.shape != (*leading, width):
            raise ValueError(f"observation[{name!r}] must have shape {(*leading, width)}, not {field.shape}")
        if field.dtype.kind not in kinds:
            kind = "integers" if kinds == _WHOLE else "real numbers"
            raise ValueError(f"observation[{name!r}] must hold {kind}, not {field.dtype}")
        if field.dtype is not dtype:
            field = _converted(name, field, dtype)
        seen[name] = field if leading else field[None]
    if len(observation) > len(fields):
        more = {name: np.asarray(field) for name, field in observation.items() if name not in seen}
        seen |= {name: field if leading else field[None] for name, field in more.items()}
    with np.errstate(invalid="ignore"):  # comparisons with NaN
        faulty = _faults(seen["worker"], seen["duration"], seen["elapsed"])
        if np.count_nonzero(faulty):
            _complain(seen, n, ("duration", "elapsed"))
        if len(fields) > _ROUND_FIELDS:
            faulty = _dispatch_faults(seen["missing"], seen["started"], seen["running"], seen["age"], budget)
            if np.count_nonzero(faulty):
                _complain_of_dispatch(seen, budget)
    return seen


@lru_cache(maxsize=64)
def _fields(n: int, budget: int, env_id: str) -> tuple[tuple[str, int, str, np.dtype[Any]], ...]:
    """Name, width, allowed kinds and dtype of each field of an observation."""
    dispatch = env_id == "ata_gym/TaskDispatch-v0"
    integers, floats = np.dtype(np.int64), np.dtype(np.float64)
    results = 1 if dispatch else budget
    fields = (
        ("worker", results, _WHOLE, integers),
        ("duration", results, _REAL, floats),
        ("elapsed", n, _REAL, floats),
    )
    if not dispatch:
        return fields
    return (
        *fields,
        ("missing", 1, _WHOLE, integers),
        ("started", n, _WHOLE, integers),
        ("running", n, _WHOLE, np.dtype(np.int8)),
        ("age", n, _REAL, floats),
    )


def _converted(name: str, field: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """The field in another dtype; ValueError where a number does not fit in."""
    with np.errstate(over="ignore"):
        converted = field.astype(dtype)
    if dtype.kind == "i" and not np.array_equal(converted, field):
        raise ValueError(f"observation[{name!r}] holds numbers that are out of range: they do not fit in {dtype}")
    return converted


def checked_rows(state: Any, rows: int, n: int) -> None:
    """Raise ValueError unless a state has this many rows and, where its belief counts tasks, this many workers."""
    if np.shape(state.round) != (rows,) or np.shape(state.key) != (rows,):
        raise ValueError(f"the state is that of {np.size(state.round)} rows, and the observation has {rows}")
    counts = getattr(state.belief, "counts", None)
    if counts is not None and np.shape(counts) != (rows, n):
        raise ValueError(f"the state's belief has shape {np.shape(counts)}: this policy has {rows} rows of {n} workers")


def _complain_of_dispatch(seen: Observation, budget: int) -> None:
    if not _times(seen["age"]):
        _complain(seen, 0, ("age",))
    for name, least, most in (("missing", 1, budget), ("started", 0, budget), ("running", 0, 1)):
        field = seen[name]
        if field.size and not (field.min() >= least and field.max() <= most):
            raise ValueError(f"observation[{name!r}] must be from {least} to {most}; one is not")


def _times(field: Floats) -> bool:
    return bool(((field >= 0.0) & (field < np.inf)).all())


def _complain(seen: Observation, n: int, times: tuple[str, ...]) -> None:
    worker = seen["worker"]
    if n and not ((worker >= -1) & (worker < n)).all():
        wrong = worker[(worker < -1) | (worker >= n)][0]
        raise ValueError(
            f'observation["worker"] must be from -1 (no result) to {n - 1}, the last of {n} workers, not {wrong}'
        )
    for name in times:
        field = seen[name]
        if not _times(field):
            wrong = field[~((field >= 0.0) & (field < np.inf))][0]
            raise ValueError(f"observation[{name!r}] must hold finite times of at least 0, not {wrong}")
    for name in times:
        seen[name] = np.minimum(seen[name], LONGEST)


@gufunc("void(int64[:], float64[:], float64[:], boolean[:])", "(r),(r),(n)->()")
def _faults(worker: Ints, duration: Floats, elapsed: Floats, out: Any) -> None:
    """Whether something is out of range, or longer than LONGEST."""
    bad = False
    n = len(elapsed)
    for r in range(len(worker)):
        bad |= not (-1 <= worker[r] < n and 0.0 <= duration[r] <= LONGEST)
    for i in range(n):
        bad |= not (0.0 <= elapsed[i] <= LONGEST)
    out[0] = bad


@gufunc("void(int64[:], int64[:], int8[:], float64[:], int64[:], boolean[:])", "(m),(n),(n),(n),()->()")
def _dispatch_faults(missing: Ints, started: Ints, running: Bits, age: Floats, budget: Ints, out: Any) -> None:
    """Whether something is out of range."""
    bad = not 1 <= missing[0] <= budget[0]
    for i in range(len(age)):
        bad |= not (0 <= started[i] <= budget[0] and 0 <= running[i] <= 1 and 0.0 <= age[i] < np.inf)
    out[0] = bad
