"""What the tests of ranks share."""

import pytest


@pytest.fixture
def alone(tmp_path):
    import gc

    import torch.distributed as dist

    # a worker process of a loader hangs or dies if it collects the process group of an earlier test
    gc.collect()
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def torchft():
    # It is imported in other processes only: its threads and warnings are not ours.
    from importlib.util import find_spec

    if find_spec("torchft") is None:
        pytest.skip('torchft is not installed: pip install "ata-gym[torchft]"')


@pytest.fixture(scope="module")
def address(torchft):  # noqa: ARG001 - it must be there
    from tests.cluster.torchrun import replicas

    with replicas.lighthouse() as address:
        yield address
