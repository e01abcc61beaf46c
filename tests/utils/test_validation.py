"""The rules for numbers, and how long or odd values look in an error."""

from typing import Any

import numpy as np
import pytest

from ata_gym.utils.validation import (
    flag,
    non_negative,
    not_an_env,
    real,
    short,
    unknown,
    whole_number,
)


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), "1", None, True, 1j, [1.0]])
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    for check in (real, non_negative):
        with pytest.raises(ValueError, match="price must be a finite number"):
            check("price", value)
    with pytest.raises(ValueError, match="budget must be a whole number from 1 to"):
        whole_number("budget", value)


def test_numbers_within_their_limits_are_taken() -> None:
    assert real("price", 10**24) == non_negative("price", 10**24) == 1e24
    assert (
        non_negative("price", 0),
        real("share", 1, up_to=1.0),
        real("change", -1, above=-2.0),
    ) == (0.0, 1.0, -1.0)
    for value in (np.int32(23), np.array(23), 23):
        assert type(whole_number("budget", value)) is int
    assert (
        whole_number("seed", 0, 0),
        whole_number("budget", 2**50),
        flag("signals", np.True_),
    ) == (0, 2**50, True)
    for check, sentence in (
        (lambda: real("shape", 0.0), "shape must be a finite number above 0, not 0.0"),
        (
            lambda: real("share", 1.5, up_to=1.0),
            "share must be a finite number above 0 and at most 1, not 1.5",
        ),
        (lambda: non_negative("price", -1), "price must be a finite number of at least 0, not -1"),
        (
            lambda: whole_number("budget", 2**50 + 1),
            r"budget must be a whole number from 1 to 2\*\*50, not",
        ),
        (lambda: whole_number("rank", 4, 0, 3), "rank must be a whole number from 0 to 3, not 4"),
        (lambda: flag("signals", 1), "signals must be True or False, not 1"),
    ):
        with pytest.raises(ValueError, match=f"^{sentence}"):
            check()


def test_errors_show_long_values_cut() -> None:
    assert (short("x" * 99), short([10**5_000])) == ("'" + "x" * 76 + "...", "list")
    assert len(str(unknown("policy", "zzz", ["ata"]))) < 80
    assert "not the text 'ata_gym/TaskRace-v0': make it first" in str(
        not_an_env("ata_gym/TaskRace-v0"),
    )
    assert "3 is not an env of ata_gym" in str(not_an_env(3))
