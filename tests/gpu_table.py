"""What tests marked ``gpu`` may do."""

from typing import Any

import pytest

INDUCTOR = (
    "ignore::DeprecationWarning:torch",  # of Python's own modules that torch.compile still uses
    "ignore:TensorFloat32 tensor cores:UserWarning",  # a hint that less exact products are faster
    "ignore:.*libdevice:UserWarning",  # Triton's own is used where there is no CUDA toolkit
)
"""What torch.compile may warn of; any other warning fails the test."""


def warnings_of_inductor(test: Any) -> Any:
    for allowed in INDUCTOR:
        test = pytest.mark.filterwarnings(allowed)(test)
    return test
