"""One thread for torch, whose threads wait for each other by spinning; tests of a GPU are skipped without one."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _cuda(request):
    if request.node.get_closest_marker("gpu") and not pytest.importorskip("torch").cuda.is_available():
        pytest.skip("there is no CUDA device")
