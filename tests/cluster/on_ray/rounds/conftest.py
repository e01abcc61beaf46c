"""A small Ray cluster on this machine, and a runner of each mode, for the tests of a file."""

from __future__ import annotations

import pytest

from tests.fuzz.actors import MODES, local_cluster, watched_runner


@pytest.fixture(scope="module")
def cluster():
    """Four logical CPUs."""
    pytest.importorskip("ray", reason="the extra cluster")
    with local_cluster():
        yield


@pytest.fixture(scope="module", params=MODES)
def watched(cluster, request):  # noqa: ARG001 - it must be there
    """A runner with the workers a and b, whose rounds are checked; it must be left usable."""
    with watched_runner(request.param) as watched:
        yield watched
        watched.check_samples()
