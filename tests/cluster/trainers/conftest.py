"""What the tests of trainers share."""

import gc
import os
from unittest import mock

import pytest

from tests.cluster.torchrun.conftest import alone  # noqa: F401


@pytest.fixture
def quick(request):
    """A process group of one rank, and no garbage, which trainers collect again and again."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.freeze()
    with mock.patch.dict(os.environ):
        request.getfixturevalue("alone")
        yield
    gc.unfreeze()
    torch.set_num_threads(threads)
