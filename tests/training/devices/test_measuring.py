import torch

from ata_gym.training import DeviceWorker, Trainer
from ata_gym.training.devices.workers import WARM_UP_TASKS, Replica, measure_times
from tests.training.small_problem import weights


def test_workers_take_turns_after_a_warm_up(monkeypatch):
    order = []
    gradients = []
    progress = []
    run = Replica.run
    gradient = Replica._gradient

    def counted(self, task, work=1, *, keep=False):
        order.append((task, work))
        return run(self, task, work, keep=keep)

    monkeypatch.setattr(Replica, "run", counted)
    monkeypatch.setattr(
        Replica,
        "_gradient",
        lambda *args: gradients.append(len(order)) or gradient(*args),
    )
    trainer = Trainer("quadratic", 1)
    before = weights(trainer).clone()
    times = measure_times(
        trainer, [DeviceWorker(work=1), DeviceWorker(work=20)], 8, progress.append
    )
    assert order == [(task, work) for task in range(8) for work in (1, 20)]
    assert gradients.count(0) == WARM_UP_TASKS  # before any task is recorded
    assert (len(gradients), progress) == (WARM_UP_TASKS + 8 * 21, list(range(1, 17)))
    assert times.shape == (2, 8)
    assert trainer.round == 0  # nothing is trained
    assert torch.equal(weights(trainer), before)
