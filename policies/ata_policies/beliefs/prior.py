"""A memory that starts from an earlier run: its counts and means, kept in a small file.

Maranjyan et al., ATA, ICML 2025: the learner starts from P tasks of mean m_i seen earlier. The
form of the file is ours.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.utils.files.atomic import check_source, write_whole
from ata_gym.utils.validation import non_negative
from ata_policies.beliefs.memory import Memory
from ata_policies.beliefs.moments import Totals

HEADER = "worker,tasks,mean"


def save_prior(path: str | os.PathLike[str], learned: Any) -> None:
    """Write counts and means to a CSV file with the columns worker, tasks and mean.

    The file is written whole or not at all.

    Args:
        path: The file.
        learned: A belief with ``counts`` and ``totals``, or the state that holds it; rows of a
            batch are added up.

    Raises:
        ValueError: If it has no counts and totals, or no task times can have them.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> path = Path(folder.name, "prior.csv")
        >>> save_prior(path, Totals(np.array([[4.0, 0.0]]), np.array([[10.0, 0.0]])))
        >>> read_prior(path)
        Totals(counts=array([[4., 0.]]), totals=array([[10.,  0.]]))
        >>> folder.cleanup()
    """
    belief = _pooled(getattr(learned, "belief", learned))
    means = np.where(belief.untried(), 0.0, belief.mean())[0]
    rows = zip(belief.counts[0].tolist(), means.tolist(), strict=True)
    lines = [HEADER]
    # ``repr`` writes all digits of a number.
    for worker, (tasks, mean) in enumerate(rows):
        lines.append(f"{worker},{tasks!r},{mean!r}")
    write_whole(Path(path), lambda part: part.write_text("\n".join(lines) + "\n", "utf-8"))


def read_prior(path: str | os.PathLike[str]) -> Totals:
    """Read what :func:`save_prior` wrote, as a belief of one row.

    Raises:
        FileNotFoundError: If there is no such file.
        ValueError: If the file is not a prior; the message says why.
    """
    path = Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no file {path}: save_prior writes one")
    try:
        check_source(path)
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} cannot be read as a prior, a CSV file: {error}") from error
    try:
        return _parsed(lines)
    except ValueError as error:
        raise ValueError(f"{path} is not a prior: {error}") from error


@dataclass(frozen=True)
class Prior(Memory[Totals]):
    """Each episode begins with the counts and means of an earlier run.

    It goes on as the earlier run would have done.

    Args:
        prior: A file of ``save_prior``, or a belief with counts and totals for every worker; rows
            are added up. None: nothing is known, as with the memory "everything".
        prior_weight: The weight of a task of the earlier run, from 0 to 1.
    """

    prior: Any = None
    prior_weight: float = 1.0

    time_unit = "the unit of the prior"

    def __post_init__(self) -> None:
        weight = non_negative("prior_weight", self.prior_weight)
        if weight > 1.0:
            raise ValueError(
                f"prior_weight must be at most 1, what a task counts for now, not {weight!r}",
            )
        if self.prior is not None:
            if isinstance(self.prior, str | os.PathLike):
                belief = read_prior(self.prior)
            else:
                belief = _pooled(self.prior)
            object.__setattr__(
                self,
                "prior",
                Totals(weight * belief.counts, weight * belief.totals),
            )

    def start(self, rows: int, n: int, deviations: bool) -> Totals:
        if deviations:
            raise ValueError(
                "a prior holds counts and means, and this estimate needs deviations: use another"
                " memory",
            )
        if self.prior is None:
            return Totals.empty(rows, n)
        if self.prior.counts.shape[1] != n:
            raise ValueError(f"the prior knows {self.prior.counts.shape[1]} workers; here are {n}")
        return Totals(*(np.repeat(part, rows, axis=0) for part in self.prior))


def _pooled(learned: Any) -> Totals:
    """Return the counts and totals of all rows added up, in one row.

    Raises:
        ValueError: If there are none, or no task times can have them.
    """
    try:
        counts, totals = (np.asarray(part, np.float64) for part in (learned.counts, learned.totals))
    except (AttributeError, TypeError, ValueError):
        raise ValueError(
            "a prior is a file or a belief with counts and totals of shape (E, n), not"
            f" {type(learned).__name__}",
        ) from None
    if counts.ndim != 2 or counts.shape != totals.shape or not counts.size:
        raise ValueError(
            f"counts and totals must both have shape (E, n), not {counts.shape} and {totals.shape}",
        )
    for name, part in (("counts", counts), ("totals", totals)):
        if not (np.isfinite(part) & (part >= 0)).all():
            raise ValueError(f"{name} must be finite and at least 0; one is not")
    if (totals[counts == 0] > 0).any():
        raise ValueError("totals must be 0 where counts are 0; one is not")
    return Totals(counts.sum(axis=0, keepdims=True), totals.sum(axis=0, keepdims=True))


def _parsed(lines: list[str]) -> Totals:
    """Return counts and totals from the lines of a file.

    Raises:
        ValueError: If something is wrong with them; the message says what.
    """
    if lines:
        header = lines[0]
    else:
        header = "nothing"
    if header != HEADER:
        raise ValueError(f"the first line must be {HEADER}, not {header}")
    if len(lines) == 1:
        raise ValueError("there must be a line for each worker; there is none")
    table = np.loadtxt(lines[1:], delimiter=",", comments=None, ndmin=2)
    if table.shape[1] != 3 or (table[:, 0] != np.arange(len(table))).any():
        raise ValueError(
            "after the first, each worker must have a line of three numbers, in order from 0",
        )
    counts = table[None, :, 1]
    means = table[None, :, 2]
    # the product of extreme numbers may be infinite, which _pooled refuses
    with np.errstate(over="ignore", invalid="ignore"):
        return _pooled(Totals(counts, counts * means))
