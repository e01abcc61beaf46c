"""The check of the observations and states that ``predict`` is given, once, before a policy learns from them."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ata_gym.changes import Conditions
from ata_gym.typing import Bits, Floats, Ints, Mask
from ata_gym.utils.compiled import kernel
from ata_gym.utils.ranges import Size, declared
from ata_gym.utils.validation import short

Observation = dict[str, NDArray[Any]]

LONGEST = 1e300  # longer times count as this one, so that their sums stay finite


class _Field(NamedTuple):
    name: str
    width: int
    dtype: np.dtype[Any]
    most: float  # the largest number allowed


def checked_observation(observation: Observation, n: int, budget: int, env_id: str) -> Observation:
    """The observation as a batch of rows, in arrays of the expected types; other keys are passed on with a row axis.

    It holds ``worker`` and ``duration`` of shape (R,) or (E, R), ``elapsed`` of shape (n,) or (E, n), and for dispatch
    ``missing`` (1,), ``started``, ``running`` and ``age`` (n,), likewise. ValueError if a key is missing, a shape or
    type is wrong, a worker is not from -1 to n - 1, or a time is negative, NaN or infinite.

    >>> seen = {"worker": np.array([2]), "duration": np.array([1.0]), "elapsed": np.zeros(2)}
    >>> checked_observation(seen, n=2, budget=1, env_id="ata_gym/TaskRace-v0")
    Traceback (most recent call last):
        ...
    ValueError: observation["worker"] must be from -1 (no result) to 1, the last of 2 workers, not 2
    """
    fields = _fields(n, budget, env_id)
    seen: Observation = {}
    leading: tuple[int, ...] = ()
    for name, width, dtype, _ in fields:
        try:
            given = np.asarray(observation[name])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            wanted = ", ".join(one.name for one in fields)
            lacking = f"the observation lacks {name}; the env of {env_id} gives {wanted}"
            other = f"an observation is a dict of arrays with the keys {wanted}: {error}"
            raise ValueError(lacking if isinstance(error, KeyError) else other) from None
        if name == "worker":
            leading = given.shape[:-1]
            if len(leading) > 1:
                raise ValueError(f'observation["worker"] must have shape (R,) or (E, R), not {given.shape}')
        if given.shape != (*leading, width):
            raise ValueError(f"observation[{name!r}] must have shape {(*leading, width)}, not {given.shape}")
        if given.dtype.kind not in ("iuf" if dtype.kind == "f" else "iub"):
            kind = "real numbers" if dtype.kind == "f" else "integers"
            raise ValueError(f"observation[{name!r}] must hold {kind}, not {given.dtype}")
        if given.dtype is not dtype:
            with np.errstate(over="ignore"):
                converted = given.astype(dtype)
            if dtype.kind == "i" and not np.array_equal(converted, given):
                raise ValueError(
                    f"observation[{name!r}] holds numbers that are out of range: they do not fit in {dtype}"
                )
            given = converted
        seen[name] = given if leading else given[None]
    if len(observation) > len(fields):
        more = {name: np.asarray(field) for name, field in observation.items() if name not in seen}
        seen |= {name: field if leading else field[None] for name, field in more.items()}
    with np.errstate(invalid="ignore"):  # comparisons with NaN
        faulty = np.count_nonzero(_faults(seen["worker"], seen["duration"], seen["elapsed"]))
        if len(fields) > 3:  # in dispatch
            round_state = seen["missing"], seen["started"], seen["running"], seen["age"]
            faulty += np.count_nonzero(_dispatch_faults(*round_state, budget))
        if faulty:
            for field in fields:
                _check_range(field, seen[field.name], n)
            for name in ("duration", "elapsed"):
                seen[name] = np.minimum(seen[name], LONGEST)
    return seen


@lru_cache(maxsize=64)
def _fields(n: int, budget: int, env_id: str) -> tuple[_Field, ...]:
    dispatch = env_id == "ata_gym/TaskDispatch-v0"
    integers, floats = np.dtype(np.int64), np.dtype(np.float64)
    results = 1 if dispatch else budget
    fields = (
        _Field("worker", results, integers, n - 1), _Field("duration", results, floats, np.inf),
        _Field("elapsed", n, floats, np.inf), _Field("missing", 1, integers, budget),
        _Field("started", n, integers, budget), _Field("running", n, np.dtype(np.int8), 1),
        _Field("age", n, floats, np.inf),
    )  # fmt: skip
    return fields if dispatch else fields[:3]


@dataclass
class Door:
    """The check of the states that a policy of this name and size is given; its ``first`` state shows their form."""

    first: Any
    size: Size
    policy: str
    last: Any = None  # the state that the policy returned last, which is not checked again; a copy or a pickle has none

    def __reduce__(self) -> "tuple[type[Door], tuple[Any, Size, str]]":
        return Door, (self.first, self.size, self.policy)

    def check(self, state: Any, rows: int) -> None:
        """ValueError unless it has so many rows, the first state's form, and only numbers that its fields allow."""
        if np.shape(state.round) != (rows,) or np.shape(state.key) != (rows,):
            raise ValueError(f"the state is that of {np.size(state.round)} rows, and the observation has {rows}")
        if _form(state) != _form(self.first):
            raise ValueError(
                f"the state is not one of this {self.policy}: it is another policy's, or its classes are made at each "
                "call (define the classes of belief and plan at the top of a module)"
            )
        for (name, leaf, within), (_, like, _) in zip(declared(state), declared(self.first), strict=True):
            shape, dtype = (rows, *np.shape(like)[1:]), np.asarray(like).dtype
            if not isinstance(leaf, np.ndarray) or (leaf.shape, leaf.dtype) != (shape, dtype):
                form = f"{leaf.dtype} of shape {leaf.shape}" if isinstance(leaf, np.ndarray) else type(leaf).__name__
                raise ValueError(f"the state's {name} must hold {dtype} of shape {shape}, not {form}")
            if within is not None:
                within.check(f"the state is not one that this {self.policy} can have: {name}", leaf, self.size)


def _form(tree: Any) -> Any:
    return (type(tree), *map(_form, tree)) if isinstance(tree, tuple) else None


def checked_start(given: Any, rows: int) -> Mask:
    """Which rows begin an episode, (E,); ValueError unless there is a boolean for each row."""
    start: Mask = np.reshape(given, -1)
    if start.shape != (rows,) or start.dtype != np.bool_:
        form = f"{start.dtype} of shape {start.shape}"
        raise ValueError(f"episode_start must be {rows} booleans, one for each row, not {form}")
    return start


def checked_conditions(given: object, rows: int, n: int, policy: str) -> Conditions:
    """The conditions of the coming round with a row axis; ValueError if they are not those of so many workers."""
    if not isinstance(given, Conditions):
        what = "nothing" if given is None else short(given)
        raise ValueError(  # noqa: TRY004
            f"{policy} is an oracle, and privileged is {what}: call predict(..., privileged=env.unwrapped.conditions())"
        )
    if given.distribution.ndim == 1:
        given = Conditions._make(part[None] if isinstance(part, np.ndarray | np.generic) else part for part in given)
    if given.distribution.shape != (rows, n):
        shape = given.distribution.shape
        raise ValueError(f"privileged must hold the conditions of {rows} rows of {n} workers, not of shape {shape}")
    return given


def _check_range(field: _Field, values: NDArray[Any], n: int) -> None:
    name, most = field.name, field.most
    least = {"worker": -1, "missing": 1}.get(name, 0)
    wrong = values[~((values >= least) & (values <= most) & (values < np.inf))]
    if not wrong.size:
        return
    if name == "worker":
        last = f"{n - 1}, the last of {n} workers"
        raise ValueError(f'observation["worker"] must be from -1 (no result) to {last}, not {wrong[0]}')
    if most == np.inf:
        raise ValueError(f"observation[{name!r}] must hold finite times of at least 0, not {wrong[0]}")
    raise ValueError(f"observation[{name!r}] must be from {least} to {most}; one is not")


def at_work(seen: Observation) -> tuple[Ints, Bits, Floats]:
    """In dispatch: how many results are missing, (E,); which workers run a task, and for how long, (E, n) each."""
    return seen["missing"][:, 0], seen["running"], seen["age"]


@kernel("(r),(r),(n)->()")
def _faults(worker: Ints, duration: Floats, elapsed: Floats, out: Mask) -> None:
    legal = 0  # numbers that are; sums without a branch vectorise
    n = len(elapsed)
    for r in range(len(worker)):
        legal += (worker[r] >= -1) & (worker[r] < n) & (duration[r] >= 0.0) & (duration[r] <= LONGEST)
    for i in range(n):
        legal += (elapsed[i] >= 0.0) & (elapsed[i] <= LONGEST)
    out[0] = legal < len(worker) + n


@kernel("(m),(n),(n),(n),()->()")
def _dispatch_faults(missing: Ints, started: Ints, running: Bits, age: Floats, budget: Ints, out: Mask) -> None:
    bad = not 1 <= missing[0] <= budget[0]
    for i in range(len(age)):
        bad |= not (0 <= started[i] <= budget[0] and 0 <= running[i] <= 1 and 0.0 <= age[i] < np.inf)
    out[0] = bad
