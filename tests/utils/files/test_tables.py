"""The errors of polars for a file that cannot be read."""

from __future__ import annotations

import polars as pl
import pytest

from ata_gym.utils.files.tables import reading


def test_a_panic_is_one_sentence():
    with pytest.raises(ValueError, match=r"^the file: it is damaged$"), reading("the file"):
        raise pl.exceptions.PanicException(
            "called `Result::unwrap()` on an `Err` value: JoinError::Panic(Id(75))",
        )


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        (
            "found more fields than defined in 'Schema'\n\nConsider 'truncate_ragged_lines=True'.",
            "a line has more",
        ),
        (
            "could not parse `x` as dtype `i64`\n\nYou might want to try",
            "could not parse `x` as dtype `i64`$",
        ),
        ("no data: empty CSV", "it is empty$"),
        (
            "could not parse `\"2` as dtype `str` at column 'b'\n\nYou might",
            "a quote in it has no end$",
        ),
        (
            "failed to determine supertype of list[i64] and f64",
            "the entries of a column are of several kinds$",
        ),
        ("something else\n\nYou might want to", "something else$"),
    ],
)
def test_the_advice_of_polars_is_left_out(message, expected):
    with pytest.raises(ValueError, match=f"^x: {expected}"), reading("x"):
        raise pl.exceptions.ComputeError(message)
