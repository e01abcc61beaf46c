"""What the tests of learning share."""

from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """Small networks learn no faster on several threads, and much slower where the cores are
    shared.
    """
    try:
        import torch
    except ImportError:
        yield
        return
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def ray() -> Iterator[None]:
    """A Ray cluster of two processors; where the machine is busy, one may not be up in time, and
    another is started.
    """
    import ray

    from ata_gym.cluster import connect_ray

    for tries in range(3):
        try:
            connect_ray(num_cpus=2)
            break
        except ValueError:
            ray.shutdown()
            if tries == 2:
                raise
    yield
    ray.shutdown()
