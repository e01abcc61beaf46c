"""What tests wait with."""

from types import SimpleNamespace

import pytest

from tests.waiting import until, without_progress


def test_a_wait_ends_where_the_process_does() -> None:
    process = SimpleNamespace(poll=lambda: 1, returncode=1, communicate=lambda: (None, "no luck"))
    with pytest.raises(AssertionError, match=r"the result did not come; exit code 1: \(None, 'no luck'\)"):
        until(lambda: False, process, about="the result")
    numbers = iter(range(3))
    assert until(lambda: next(numbers)) == 1


def test_lines_of_progress_are_left_out() -> None:
    line = "ata-gym: 40% done after 0.5 minutes (uta 4 of 10)\n"
    assert without_progress(f"{line}ata-gym: stopped\n{line}") == "ata-gym: stopped\n"
