import pytest
import torch

from ata_gym.training import Worker
from ata_gym.training.devices.workers import find_workers


def test_workers_as_text():
    assert find_workers("cpu, cpu:2 ,cpu:03") == (Worker(), Worker(work=2), Worker(work=3))
    assert find_workers([Worker("cpu", 4), "cpu:1"]) == (Worker(work=4), Worker())
    assert all(Worker.parse(str(worker)) == worker for worker in find_workers("cpu:7,cpu"))


@pytest.mark.parametrize(
    ("device", "work"), [("cpu", 0), ("cpu", 1.5), ("cpu", True), ("cpu:1", 1), ("gpu", 1), (0.5, 1)]
)
def test_workers_that_cannot_be(device, work):
    with pytest.raises(ValueError, match=r"work must be a whole number|device must be"):
        Worker(device, work)


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        (None, r'name at least one worker, such as workers=\["cpu:1", "cpu:2"\]'),
        ([], "name at least one worker"),
        (" , ", "name at least one worker"),
        ("cpu,tpu", "device must be .*not 'tpu'"),
        ("cpu,cpu:0", "work must be a whole number from 1"),
        ("cpu:-1", "a worker is DEVICE or DEVICE:WORK.*not 'cpu:-1'"),
        ("cpu:1:2", "a worker is DEVICE or DEVICE:WORK.*not 'cpu:1:2'"),
        ("cpu:", "a worker is DEVICE or DEVICE:WORK"),
        ("cuda:99:2", '"cuda:99" was asked for, but torch'),
        (["cpu", 3], "a worker is DEVICE or DEVICE:WORK.*not 3"),
    ],
)
def test_workers_that_make_no_sense(workers, sentence):
    with pytest.raises(ValueError, match=sentence):
        find_workers(workers)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
@pytest.mark.parametrize("text", ["cuda", "cuda:0", "cuda:0:3"])
def test_cuda_is_refused_where_there_is_none(text):
    with pytest.raises(ValueError, match=r'"cuda.*" was asked for, but torch .* sees 0 CUDA devices: use device="cpu"'):
        find_workers(["cpu", text])


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")
def test_a_gpu_has_one_name():
    assert find_workers("cuda,cuda:0,cuda:0:3") == (Worker("cuda:0"), Worker("cuda:0"), Worker("cuda:0", 3))
