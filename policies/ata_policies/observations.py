"""The check of the observations and states that ``predict`` is given.

They are checked once, before a policy learns from them.
"""

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
from ata_policies.beliefs.availability import results_of

Observation = dict[str, NDArray[Any]]

LONGEST_TIME = 1e300  # longer times count as this one, so that their sums stay finite


class _Field(NamedTuple):
    """A field of an observation."""

    name: str
    width: int
    """Numbers in a row."""
    dtype: np.dtype[Any]
    largest: float
    """The largest number allowed."""


def checked_observation(observation: Observation, n: int, budget: int, env_id: str) -> Observation:
    """Return the observation as a batch of rows, in arrays of the expected types.

    The keys ``latency`` and ``allocation`` are checked where they are there; other keys are passed
    on with a row axis.

    Args:
        observation: It holds ``worker`` and ``duration`` of shape (R,) or (E, R), ``elapsed`` of
            shape (n,) or (E, n), maybe ``latency`` and ``allocation`` of this shape, and for
            dispatch ``missing``, (1,) or (E, 1), and ``started``, ``running`` and ``age``, (n,) or
            (E, n). A loop that does real work may add ``warm_up``, booleans of shape (n,) or
            (E, n), see ``counted``.
        n: Workers.
        budget: Results that a round needs.
        env_id: The env that gives the observation.

    Raises:
        ValueError: If a key is missing, a shape or type is wrong, a worker is not from -1 to n - 1,
            or a time is negative, NaN or infinite.

    Example:
        >>> observation = {"worker": np.array([2]), "duration": np.ones(1), "elapsed": np.zeros(2)}
        >>> checked_observation(observation, n=2, budget=1, env_id="ata_gym/TaskRace-v0")
        Traceback (most recent call last):
            ...
        ValueError: observation["worker"] must be from -1 (no result) to 1, the last of ...
    """
    fields = _fields(n, budget, env_id)
    if isinstance(observation, dict) and "latency" in observation:
        fields = (*fields, _LATENCY._replace(width=n))
    if isinstance(observation, dict) and "allocation" in observation:
        fields = (*fields, _Field("allocation", n, np.dtype(np.int64), budget))
    checked: Observation = {}
    leading: tuple[int, ...] = ()
    for name, width, dtype, _ in fields:
        try:
            array = np.asarray(observation[name])
        except (KeyError, TypeError, ValueError, IndexError) as error:
            keys = ", ".join(field.name for field in fields)
            if isinstance(error, KeyError):
                message = f"the observation lacks {name}; the env of {env_id} gives {keys}"
            else:
                message = f"an observation is a dict of arrays with the keys {keys}: {error}"
            raise ValueError(message) from None
        if name == "worker":
            leading = array.shape[:-1]
            if len(leading) > 1:
                raise ValueError(
                    f'observation["worker"] must have shape (R,) or (E, R), not {array.shape}',
                )
        if array.shape != (*leading, width):
            raise ValueError(
                f"observation[{name!r}] must have shape {(*leading, width)}, not {array.shape}",
            )
        # kinds of NumPy's types: b boolean, i and u integer, f float
        if dtype.kind == "f":
            kind = "real numbers"
            allowed = "iuf"
        else:
            kind = "integers"
            allowed = "iub"
        if array.dtype.kind not in allowed:
            raise ValueError(f"observation[{name!r}] must hold {kind}, not {array.dtype}")
        if array.dtype is not dtype:
            with np.errstate(over="ignore"):
                converted = array.astype(dtype)
            if dtype.kind == "i" and not np.array_equal(converted, array):
                raise ValueError(
                    f"observation[{name!r}] holds numbers that are out of range: they do not fit in"
                    f" {dtype}",
                )
            array = converted
        if leading:
            checked[name] = array
        else:
            checked[name] = array[None]
    if len(observation) > len(fields):
        for name, field in observation.items():
            if name in checked:
                continue
            array = np.asarray(field)
            if leading:
                checked[name] = array
            else:
                checked[name] = array[None]
        _check_warm_up(checked, (len(checked["worker"]), n))
    _check_numbers(checked, fields, n, budget)
    return checked


def _check_numbers(checked: Observation, fields: tuple[_Field, ...], n: int, budget: int) -> None:
    """Raise ValueError for a number that is out of range, and shorten times that are too long.

    Args:
        checked: The fields of an observation, in arrays of the expected types.
        fields: Which fields they are.
        n: Workers.
        budget: Results that a round needs.
    """
    # comparisons with NaN would warn
    with np.errstate(invalid="ignore"):
        # one compiled pass over all numbers; which field is wrong is looked for only where one is,
        # or where a time is too long to be added up
        faulty = np.count_nonzero(
            _faults(checked["worker"], checked["duration"], checked["elapsed"])
        )
        if "latency" in checked:
            latency = checked["latency"]
            faulty += np.count_nonzero(~((latency >= 0.0) & (latency <= LONGEST_TIME)))
        if "allocation" in checked:
            tasks = checked["allocation"]
            faulty += np.count_nonzero((tasks < 0) | (tasks > budget))
        # only dispatch has it
        if "missing" in checked:
            round_state = checked["missing"], checked["started"], checked["running"], checked["age"]
            faulty += np.count_nonzero(_dispatch_faults(*round_state, budget))
        if faulty:
            for field in fields:
                _check_range(field, checked[field.name], n)
            for name in {"duration", "elapsed", "latency"} & checked.keys():
                checked[name] = np.minimum(checked[name], LONGEST_TIME)


_LATENCY = _Field("latency", 0, np.dtype(np.float64), np.inf)
"""What workers spend before their first task of a round, in envs where they do."""


def check_delay(observation: Observation, delay: int, policy: str) -> None:
    """Check that an observation is as late as a policy expects.

    Args:
        observation: The observation; one that is late has the allocation that it is of.
        delay: The rounds after which the policy gets to know results.
        policy: The name of the policy, for the error.

    Raises:
        ValueError: If only one of the two is late.
    """
    if ("allocation" in observation) == (delay > 0):
        return
    if delay > 0:
        other = "has no allocation, so that it is not late"
    else:
        other = "has the allocation of an earlier round"
    raise ValueError(
        f"{policy} was made for feedback that is {delay} rounds late, and this observation"
        f" {other}: make the policy for the env that it plays",
    )


def with_latency_spread(observation: Observation) -> Observation:
    """Return an observation whose times hold the latencies, as if whole shares were timed.

    A worker's latency is spread evenly over its results of the round. A worker without a result has
    it in its elapsed time. Nothing is left to be added: the result has no latency apart. Without
    latencies the observation is returned as it is.

    Args:
        observation: A checked observation, with a row axis.

    Example:
        >>> round = {"worker": np.array([[0, 0, 1]]), "duration": np.array([[1.0, 2.0, 5.0]])}
        >>> round |= {"elapsed": np.zeros((1, 3)), "latency": np.array([[4.0, 1.0, 3.0]])}
        >>> whole = with_latency_spread(round)
        >>> whole["duration"], whole["elapsed"]
        (array([[3., 4., 6.]]), array([[0., 0., 3.]]))
        >>> "latency" in whole
        False
    """
    if "latency" not in observation:
        return observation
    worker = observation["worker"]
    duration = observation["duration"]
    elapsed = observation["elapsed"]
    latency = observation["latency"]
    counts = results_of(worker, latency.shape[1])
    per_result = latency / np.maximum(counts, 1)
    added = np.take_along_axis(per_result, np.maximum(worker, 0), axis=1)
    whole = observation | {
        "duration": np.where(worker >= 0, duration + added, duration),
        "elapsed": np.where(counts > 0, elapsed, elapsed + latency),
    }
    del whole["latency"]
    return whole


def paid_in_full(worker: Ints, elapsed: Floats) -> Mask:
    """Return which workers have begun a task, (E, n), so that they have paid their latency.

    Args:
        worker: (E, R) whose result each one is; -1 means no result.
        elapsed: (E, n) how long each worker's cancelled task had run.
    """
    return np.asarray((elapsed > 0.0) | (results_of(worker, elapsed.shape[1]) > 0.0))


def _check_warm_up(observation: Observation, shape: tuple[int, int]) -> None:
    """Raise ValueError unless the workers in their warm-up, if they are told, have this shape."""
    warm_up = observation.get("warm_up")
    if warm_up is not None and (warm_up.shape != shape or warm_up.dtype != np.bool_):
        raise ValueError(
            'observation["warm_up"] must hold a boolean for each worker, not'
            f" {warm_up.dtype} of shape {warm_up.shape}",
        )


@lru_cache(maxsize=64)
def _fields(n: int, budget: int, env_id: str) -> tuple[_Field, ...]:
    """Return the fields that an observation of this env must have."""
    dispatch = env_id == "ata_gym/TaskDispatch-v0"
    integers = np.dtype(np.int64)
    floats = np.dtype(np.float64)
    if dispatch:
        results = 1
    else:
        results = budget
    fields = (
        _Field("worker", results, integers, n - 1),
        _Field("duration", results, floats, np.inf),
        _Field("elapsed", n, floats, np.inf),
        _Field("missing", 1, integers, budget),
        _Field("started", n, integers, budget),
        _Field("running", n, np.dtype(np.int8), 1),
        _Field("age", n, floats, np.inf),
    )
    if dispatch:
        return fields
    return fields[:3]


@dataclass
class StateCheck:
    """The check of the states that a policy is given."""

    first_state: Any
    """Its first state, which shows the form of all states."""
    size: Size
    """Its n and B."""
    policy_name: str
    """Its name."""
    last_state: Any = None
    """The state that the policy returned last, which is not checked again.

    A copy or a pickle has none.
    """

    def __reduce__(self) -> "tuple[type[StateCheck], tuple[Any, Size, str]]":
        return StateCheck, (self.first_state, self.size, self.policy_name)

    def check(self, state: Any, rows: int) -> None:
        """Check a state.

        Raises:
            ValueError: Unless it has so many rows, the first state's form, and only numbers that
                its fields allow.
        """
        if np.shape(state.round) != (rows,) or np.shape(state.key) != (rows,):
            raise ValueError(
                f"the state is for {np.size(state.round)} rows, and the observation has {rows}",
            )
        if _form(state) != _form(self.first_state):
            raise ValueError(
                f"the state is not one of this {self.policy_name}: it is another policy's, or its"
                " classes are made at each call (define the classes of belief and plan at the top"
                " of a module)",
            )
        for (name, leaf, bounds), (_, first_leaf, _) in zip(
            declared(state),
            declared(self.first_state),
            strict=True,
        ):
            shape = (rows, *np.shape(first_leaf)[1:])
            dtype = np.asarray(first_leaf).dtype
            if not isinstance(leaf, np.ndarray) or (leaf.shape, leaf.dtype) != (shape, dtype):
                if isinstance(leaf, np.ndarray):
                    form = f"{leaf.dtype} of shape {leaf.shape}"
                else:
                    form = type(leaf).__name__
                raise ValueError(
                    f"the state's {name} must hold {dtype} of shape {shape}, not {form}",
                )
            if bounds is not None:
                bounds.check(
                    f"the state is not one that this {self.policy_name} can have: {name}",
                    leaf,
                    self.size,
                )


def _form(tree: Any) -> Any:
    """Return the types of a tree of tuples."""
    if isinstance(tree, tuple):
        return (type(tree), *map(_form, tree))
    return None


def checked_start(episode_start: Any, rows: int) -> Mask:
    """Return which rows begin an episode, (E,).

    Args:
        episode_start: What ``predict`` was given.
        rows: The number of rows.

    Raises:
        ValueError: Unless there is a boolean for each row.
    """
    start: Mask = np.reshape(episode_start, -1)
    if start.shape != (rows,) or start.dtype != np.bool_:
        form = f"{start.dtype} of shape {start.shape}"
        raise ValueError(f"episode_start must be {rows} booleans, one for each row, not {form}")
    return start


def checked_conditions(privileged: object, rows: int, n: int, policy: str) -> Conditions:
    """Return the conditions of the coming round with a row axis.

    Args:
        privileged: What ``predict`` was given.
        rows: The number of rows.
        n: Workers.
        policy: The name of the policy, for the error.

    Raises:
        ValueError: If they are no conditions, or not of so many rows and workers.
    """
    if not isinstance(privileged, Conditions):
        if privileged is None:
            description = "nothing"
        else:
            description = short(privileged)
        raise ValueError(  # noqa: TRY004
            f"{policy} is an oracle, and privileged is {description}: call predict(...,"
            " privileged=env.unwrapped.conditions())",
        )
    if privileged.distribution.ndim == 1:
        privileged = Conditions._make(
            field[None] if isinstance(field, np.ndarray | np.generic) else field
            for field in privileged
        )
    if privileged.distribution.shape != (rows, n):
        shape = privileged.distribution.shape
        raise ValueError(
            f"privileged must hold the conditions of {rows} rows of {n} workers, not of shape"
            f" {shape}",
        )
    return privileged


def _check_range(field: _Field, values: NDArray[Any], n: int) -> None:
    """Raise ValueError for the first number of a field that is out of range."""
    name = field.name
    largest = field.largest
    smallest = {"worker": -1, "missing": 1}.get(name, 0)
    illegal = values[~((values >= smallest) & (values <= largest) & (values < np.inf))]
    if not illegal.size:
        return
    if name == "worker":
        limit = f"{n - 1}, the last of {n} workers"
        raise ValueError(
            f'observation["worker"] must be from -1 (no result) to {limit}, not {illegal[0]}',
        )
    if largest == np.inf:
        raise ValueError(
            f"observation[{name!r}] must hold finite times of at least 0, not {illegal[0]}",
        )
    raise ValueError(f"observation[{name!r}] must be from {smallest} to {largest}; one is not")


def round_progress(observation: Observation) -> tuple[Ints, Bits, Floats]:
    """Return the state of a round in dispatch.

    That is how many results are missing, (E,), which workers run a task, (E, n), and for how long,
    (E, n).
    """
    return observation["missing"][:, 0], observation["running"], observation["age"]


@kernel("(r),(r),(n)->()")
def _faults(worker: Ints, duration: Floats, elapsed: Floats, out: Mask) -> None:
    """Fill in whether a number of a row is illegal, or a time longer than the longest."""
    legal = 0  # how many numbers are legal; sums without a branch vectorise
    n = len(elapsed)
    for r in range(len(worker)):
        legal += (
            (worker[r] >= -1)
            & (worker[r] < n)
            & (duration[r] >= 0.0)
            & (duration[r] <= LONGEST_TIME)
        )
    for i in range(n):
        legal += (elapsed[i] >= 0.0) & (elapsed[i] <= LONGEST_TIME)
    out[0] = legal < len(worker) + n


@kernel("(m),(n),(n),(n),()->()")
def _dispatch_faults(
    missing: Ints,
    started: Ints,
    running: Bits,
    age: Floats,
    budget: Ints,
    out: Mask,
) -> None:
    """Fill in whether a number of a row is illegal that only dispatch has."""
    illegal = not 1 <= missing[0] <= budget[0]
    for i in range(len(age)):
        illegal |= not (
            0 <= started[i] <= budget[0] and 0 <= running[i] <= 1 and 0.0 <= age[i] < np.inf
        )
    out[0] = illegal
