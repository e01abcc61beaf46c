"""One thread for torch, whose threads wait for each other by spinning."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def _one_thread():
    torch = pytest.importorskip("torch")
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="session")
def refused():
    def check(result, sentence):
        assert result.exit_code == 2
        assert sentence in result.stderr
        assert result.stderr.count("\n") == 1

    return check
