"""The place where a user's own code failed, as text that also goes to another process."""

import json
import pickle
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from ata_gym.utils import errors
from ata_gym.utils.errors import SentError, described, explained, place_of, portable
from ata_gym.utils.extras import load_object
from ata_gym.utils.validation import whole_number


class TwoPartsError(Exception):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} {second}")


def caught(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:
        return error
    raise AssertionError("nothing was raised")


def user_code(source: str) -> Callable[[], object]:
    namespace: dict[str, object] = {"__name__": "my_policies"}
    exec(compile(source, __file__, "exec"), namespace)
    return namespace["call"]  # type: ignore[return-value]


def test_the_place_is_the_innermost_of_the_users_own(monkeypatch: pytest.MonkeyPatch) -> None:
    # A test before may have named json.
    monkeypatch.setattr(errors, "_user_packages", set())
    first = Path(__file__).read_text("utf-8").splitlines()[2].strip()
    error = caught(user_code("import json\ndef call():\n    json.loads('{')"))
    assert described(error).endswith(f"{Path(__file__).name}, line 3: {first})")
    assert described(error).startswith("JSONDecodeError: Expecting property name")
    outer = ValueError("a sentence of ours")
    outer.__cause__ = error
    assert place_of(outer) == place_of(error)


def test_an_error_of_ours_or_of_a_library_has_no_place_but_in_what_the_user_names(
    monkeypatch,
) -> None:
    libraries = (*errors._STANDARD_LIBRARY, str(Path(__file__).parent))
    monkeypatch.setattr(errors, "_STANDARD_LIBRARY", libraries)
    monkeypatch.setattr(errors, "_user_packages", set())
    assert place_of(caught(lambda: json.loads("{"))) is None
    ours = caught(lambda: whole_number("rounds", 0))
    assert explained(ours) == str(ours)
    assert explained(caught(lambda: np.ones(2) + np.ones(3))).startswith(
        "operands could not be broadcast",
    )
    assert explained(caught(lambda: {}["a"])) == "KeyError: 'a'"

    failed = caught(user_code("def call():\n    return 1 / 0"))
    assert place_of(failed) is None
    assert caught(lambda: load_object("policy", "my_policies:Missing"))
    assert f"{Path(__file__).name}, line 2" in str(place_of(failed))


@pytest.mark.parametrize(
    ("error", "kind"),
    [(TwoPartsError("lost", "its way"), SentError), (RuntimeError("lost"), RuntimeError)],
)
def test_a_place_goes_with_an_error_to_another_process(
    error: Exception,
    kind: type[Exception],
) -> None:
    def fail() -> None:
        raise error

    received = pickle.loads(pickle.dumps(portable(caught(fail))))
    assert isinstance(received, kind)
    assert described(received) == described(error)
    assert "test_errors.py, line" in described(received)
