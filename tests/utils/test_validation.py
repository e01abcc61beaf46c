"""The rules for numbers, and how long or odd values look in an error."""

from __future__ import annotations

from typing import Any

import pytest

from ata_gym.utils.validation import non_negative, real, short, unknown, whole_number


@pytest.mark.parametrize("value", [10**400, float("inf"), float("nan"), "1", None, True, 1j, [1.0]])
def test_what_is_no_finite_number_is_refused(value: Any) -> None:
    for check in (real, non_negative):
        with pytest.raises(ValueError, match="price must be a finite number"):
            check("price", value)
    with pytest.raises(ValueError, match="budget must be a whole number from 1 to"):
        whole_number("budget", value)


def test_large_numbers_that_floats_hold_are_numbers() -> None:
    assert real("price", 10**24) == non_negative("price", 10**24) == 1e24


def test_errors_show_long_values_cut() -> None:
    assert short("x" * 99) == "'" + "x" * 76 + "..."
    assert short(-(10**5_000)) == "a whole number of 16610 bits"
    assert short([10**5_000]) == "list"
    assert len(str(unknown("policy", "zzz", ["ata"]))) < 80
