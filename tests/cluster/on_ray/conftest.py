"""One small Ray cluster on this machine for all tests of rounds, and a runner of each mode for the
tests of a file.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.fuzz.actors import MODES, local_cluster, watched_runner


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """With ``--dist loadgroup``, one process of pytest-xdist runs all tests of this folder, and
    starts one Ray.
    """
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.xdist_group("ray"))


@pytest.fixture(scope="session")
def running() -> Iterator[ExitStack]:
    """Closed at the end of the session, or earlier by who needs another cluster, it shuts the
    cluster down.
    """
    with ExitStack() as stack:
        yield stack


@pytest.fixture(scope="module")
def cluster(running: ExitStack) -> None:
    ray = pytest.importorskip("ray", reason="the extra cluster")
    if not ray.is_initialized():
        running.enter_context(local_cluster())


@pytest.fixture(scope="module", params=MODES)
def watched(cluster, request, tmp_path_factory):  # noqa: ARG001 - it must be there
    with watched_runner(request.param, folder=tmp_path_factory.mktemp("actors")) as watched:
        yield watched
        watched.check_samples()
