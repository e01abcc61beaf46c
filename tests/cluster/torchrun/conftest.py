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
