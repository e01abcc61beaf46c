"""What polars says of a file that cannot be read."""

from __future__ import annotations

import os

import polars as pl
import pytest

from ata_gym.utils.tables import reading

BACKTRACE = b"thread 'async-executor-0' panicked at crates/polars-parquet/src:1:\nstack backtrace:\n   0: __rustc\n"


def panic() -> None:
    os.write(2, BACKTRACE)
    raise pl.exceptions.PanicException("called `Result::unwrap()` on an `Err` value: JoinError::Panic(Id(75))")


def test_a_panic_is_one_sentence_without_its_backtrace_and_other_lines_stay(capfd):
    with pytest.raises(ValueError, match=r"^the file: it is damaged$"), reading("the file"):
        panic()
    assert capfd.readouterr().err == ""
    with reading("the file cannot be read"):
        os.write(2, b"a warning\n")
    assert capfd.readouterr().err == "a warning\n"


@pytest.mark.parametrize(
    ("said", "ours"),
    [
        ("found more fields than defined in 'Schema'\n\nConsider 'truncate_ragged_lines=True'.", "a line has more"),
        ("could not parse `x` as dtype `i64`\n\nYou might want to try", "could not parse `x` as dtype `i64`$"),
        ("no data: empty CSV", "no data: empty CSV$"),
    ],
)
def test_the_advice_of_polars_is_left_out(said, ours):
    with pytest.raises(ValueError, match=f"^x: {ours}"), reading("x"):
        raise pl.exceptions.ComputeError(said)
