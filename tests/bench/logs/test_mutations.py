"""Over 200 damaged files of all formats and refused kinds give times, or a sentence."""

import re
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ata_gym.bench.logs import Log, read_log
from tests.bench.logs import examples
from tests.bench.logs.mutations import MUTATIONS

WRITERS: dict[str, Callable[[Path], Path]] = {
    **examples.READ,
    **{
        f"{name} {place + 1}": writer
        for name, writers in examples.REFUSED.items()
        for place, writer in enumerate(writers)
    },
}
_INTERNALS = re.compile(
    r"polars|msgspec|numpy|\w::\w|Traceback|object at 0x|NoneType|dtype|supertype|Utf8"
    r"|^(?:Expecting|Extra data|Unterminated|Invalid|Error)",
)
"""What no sentence to a user holds, nor begins with: words of libraries."""


def checked(path: Path) -> Log | None:
    """What is read of a file, or None where it is refused as it ought to be."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            log = read_log(path)
        except ValueError as error:
            said = str(error)
            assert said.startswith(f"{path}: ")
            sentence = said.removeprefix(f"{path}: ")
            assert "\n" not in sentence
            assert len(sentence) < 1_500, sentence
            assert not _INTERNALS.search(sentence), sentence
            assert len(sentence.split()) > 3, sentence
            return None
    assert log.seconds.shape == log.tasks.shape == (len(log.step_names), len(log.workers))
    assert len({*log.workers}) == len(log.workers) >= 2
    assert len(log.seconds) >= 2
    assert (np.isfinite(log.seconds) & (log.seconds >= 0)).all()
    assert (np.isfinite(log.tasks) & (log.tasks > 0)).all()
    if log.rest is not None:
        assert log.rest.shape == (len(log.seconds),)
        assert (np.isfinite(log.rest) & (log.rest >= 0)).all()
    return log


def mutate(path: Path, folder: Path, mutation: str, rng: np.random.Generator) -> None:
    """Read a log of which a file is mutated, and put the file back."""
    files = sorted(file for file in folder.rglob("*") if file.is_file())
    file = files[rng.integers(len(files))]
    whole = file.read_bytes()
    file.write_bytes(MUTATIONS[mutation](whole, rng))
    try:
        checked(path)
    finally:
        file.write_bytes(whole)


def test_there_are_over_200_mutated_files():
    assert len(WRITERS) * len(MUTATIONS) >= 200


@pytest.mark.parametrize("name", WRITERS)
def test_a_mutated_file_is_read_in_part_or_refused_in_a_sentence(name, tmp_path):
    path = WRITERS[name](tmp_path)
    repeats = 3 if name in examples.READ else 1
    for number, mutation in enumerate([*MUTATIONS] * repeats):
        mutate(path, tmp_path, mutation, np.random.default_rng(number))
