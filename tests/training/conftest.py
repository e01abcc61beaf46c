"""One thread for torch: its threads wait for each other by spinning, which is slow where tests run side by side."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
