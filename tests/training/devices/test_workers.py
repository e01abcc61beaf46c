import pytest
import torch
from torch import nn

from ata_gym.models.seeds import seeded
from ata_gym.models.stopwatch import Stopwatch
from ata_gym.training import Classification, DeviceWorker, Trainer
from ata_gym.training.devices.workers import WARM_UP_TASKS, Replica, find_workers, replicate
from ata_gym.training.trainer.trainer import Gradient
from tests.training.small_problem import small

CPU = torch.device("cpu")
ELSEWHERE = torch.device("cpu:1")  # to torch another device


def test_workers_as_text():
    assert find_workers("cpu, cpu:2 ,cpu:03") == (
        DeviceWorker(),
        DeviceWorker(work=2),
        DeviceWorker(work=3),
    )
    assert find_workers([DeviceWorker("cpu", 4), "cpu:1"]) == (DeviceWorker(work=4), DeviceWorker())
    assert all(DeviceWorker.parse(str(worker)) == worker for worker in find_workers("cpu:7,cpu"))


@pytest.mark.parametrize(
    ("workers", "sentence"),
    [
        (None, r'name at least one worker, such as workers=\["cpu:1", "cpu:2"\]'),
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
    for device, work in (("cpu", 1.5), ("cpu", True), ("cpu:1", 1), (0.5, 1)):
        with pytest.raises(ValueError, match=r"work must be a whole number|device must be"):
            DeviceWorker(device, work)


def test_gpus_are_named_by_their_index(monkeypatch):
    for name, value in {"is_available": True, "device_count": 2, "current_device": 1}.items():
        monkeypatch.setattr(torch.cuda, name, lambda value=value: value)
    workers = find_workers("cuda:0,cuda:1,cpu:2,cuda:1:3,cuda")
    assert [(worker.device, worker.work) for worker in workers] == [
        ("cuda:0", 1),
        ("cuda:1", 1),
        ("cpu", 2),
        ("cuda:1", 3),
        ("cuda:1", 1),
    ]
    with pytest.raises(ValueError, match="sees 2 CUDA devices: count from cuda:0 to cuda:1"):
        DeviceWorker("cuda:2")


def test_a_seed_of_a_gpu_starts_cuda(monkeypatch):
    generators = torch.Generator(), torch.Generator()
    monkeypatch.setattr(torch.cuda, "default_generators", ())
    monkeypatch.setattr(
        torch.cuda,
        "init",
        lambda: setattr(torch.cuda, "default_generators", generators),
    )
    with seeded(5, torch.device("cuda:1")):
        drawn = torch.rand(3, generator=generators[1])
    assert torch.equal(drawn, torch.rand(3, generator=torch.Generator().manual_seed(5)))
    # as it was before
    assert torch.equal(
        *(torch.rand(1, generator=generator) for generator in generators),
    )


class Told(Classification):
    def __init__(self, *args):
        super().__init__(*args)
        self.told = []

    def draw(self, keys):
        self.told.append("draw")
        return super().draw(keys)

    def loss(self, model, batch):
        self.told.append("loss")
        return super().loss(model, batch)


def trainer_of(build=lambda: nn.Linear(2, 3), **kwargs):
    return Trainer(small(build, Told), 4, **kwargs)


def test_a_gradient_is_computed_as_often_as_the_work_says_and_added_once_where_it_is_kept():
    trainer = trainer_of()
    trainer.problem.told.clear()
    replicas = replicate(trainer, [DeviceWorker(), DeviceWorker(work=3), DeviceWorker()])
    assert list(replicas) == ["cpu"]  # workers of one device share it
    replica = replicas["cpu"]
    told = trainer.problem.told
    assert told.count("loss") == WARM_UP_TASKS
    replica.run(0)
    assert replica.total(CPU) == [None, None]
    seconds, loss = replica.run(0, 5, keep=True)
    assert told.count("loss") == WARM_UP_TASKS + 6
    assert seconds > 0
    five = replica.total(CPU)
    replica.run(1)
    assert all(torch.equal(a, b) for a, b in zip(five, replica.total(CPU), strict=True))
    replica.begin()
    assert replica.run(0, 1, keep=True)[1] == loss
    assert all(torch.equal(a, b) for a, b in zip(five, replica.total(CPU), strict=True))


def test_the_draw_of_a_tasks_data_takes_none_of_its_time(monkeypatch):
    problem = small(kind=Told)
    takes = {"draw": 100.0, "loss": 1.0, "clock": 0.0}

    def clock():
        problem.told.append("clock")
        return sum(takes[what] for what in problem.told)

    monkeypatch.setattr("ata_gym.models.stopwatch.perf_counter", clock)
    replica = Replica(Trainer(problem, 4), CPU)
    problem.told.clear()
    seconds, _ = replica.run(0, work=3)
    assert (problem.told, seconds) == (["draw", "clock", *["loss"] * 3, "clock"], 3.0)


def test_a_replica_follows_weights_and_buffers_and_its_warm_up_leaves_the_model():
    calls = []
    trainer = trainer_of(
        lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4).eval(), nn.Linear(4, 3)),
    )
    trainer.model.register_forward_hook(lambda model, *_: calls.append(model))
    trainer.problem.told.clear()
    replica = Replica(trainer, ELSEWHERE)
    Replica(trainer, CPU)
    assert trainer.problem.told.count("loss") == len(calls) == 2 * WARM_UP_TASKS
    assert not any(model is trainer.model for model in calls)
    for _ in range(2):
        trainer.step()
        trainer.model[1].running_mean.fill_(3.0)
        replica.begin()
        for a, b in zip(
            replica._copy.state_dict().values(),
            trainer.model.state_dict().values(),
            strict=True,
        ):
            assert torch.equal(a, b)
            assert a.data_ptr() != b.data_ptr()
        trainer.reset()


def test_dropout_is_keyed_by_the_seed_the_round_and_the_task():
    def dropped(seed, device):
        trainer = trainer_of(
            lambda: nn.Sequential(nn.Linear(2, 50), nn.Dropout(0.5), nn.Linear(50, 3)),
            seed=seed,
        )
        replica = Replica(trainer, device)
        masks = []
        replica._model[1].register_forward_hook(
            lambda *args: masks.append((args[2] == 0).numpy().tobytes()),
        )
        for _ in range(2):
            for task in (2, 0, 1):
                replica.run(task, keep=True)
            trainer.apply(Gradient(1.0, replica.total(CPU)))
            replica.begin()
        return masks

    state = torch.manual_seed(7).get_state()
    first = dropped(3, CPU)
    assert torch.equal(torch.get_rng_state(), state)
    assert (len(set(first)), dropped(3, ELSEWHERE)) == (6, first)
    assert not set(dropped(4, CPU)) & set(first)


def test_on_cuda_a_task_is_timed_by_events_of_its_device(monkeypatch):
    second = torch.device("cuda:1")
    told = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self, stream):
            told.append(stream)

        def synchronize(self):
            told.append("wait")

        def elapsed_time(self, end):
            assert end is not self
            return 250.0

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: f"record on {device}")
    watch = Stopwatch(second)
    begun = watch.mark()
    told.append("loss")
    assert watch.seconds(begun, watch.mark()) == 0.25
    assert told == ["record on cuda:1", "loss", "record on cuda:1", "wait"]
