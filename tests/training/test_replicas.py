import pytest
import torch
from torch import nn

from ata_gym.training import Classification, Trainer, Worker
from ata_gym.training.devices.replicas import WARM_UP, Replica, add, replicate
from ata_gym.training.trainer import Gradient
from tests.training.small_problem import SAMPLES

CPU = torch.device("cpu")
ELSEWHERE = torch.device("cpu:1")  # to torch another device


class Counting(Classification):
    """It counts how often a loss was computed."""

    losses = 0

    def loss(self, model, batch):
        type(self).losses += 1
        return super().loss(model, batch)


def trainer_of(build=lambda: nn.Linear(2, 3), **kwargs):
    return Trainer(Counting(build, SAMPLES, SAMPLES), 4, **kwargs)


def gradient_of(trainer, device=CPU):
    replica = Replica(trainer, device)
    for task in range(4):
        replica.run(task, keep=True)
    return replica.total(CPU)


@pytest.mark.parametrize("device", [CPU, ELSEWHERE])
def test_single_tasks_add_up_to_the_trainers_gradient(device):
    trainer = trainer_of()
    for _ in range(2):
        total = gradient_of(trainer, device)
        loss = trainer.step()
        for part, weights in zip(total, trainer.model.parameters(), strict=True):
            torch.testing.assert_close(part / 4, weights.grad)
    assert loss > 0


def test_only_what_is_kept_is_added():
    replica = Replica(trainer_of(), CPU)
    assert replica.total(CPU) == [None, None]
    replica.run(0)
    assert replica.total(CPU) == [None, None]
    replica.run(0, keep=True)
    once = replica.total(CPU)
    replica.run(1)
    assert all(torch.equal(a, b) for a, b in zip(replica.total(CPU), once, strict=True))
    replica.begin()
    assert replica.total(CPU) == [None, None]


def test_parts_without_a_gradient_add_nothing():
    one = torch.ones(2)
    assert add([None, one, None], [None, None, one]) == [None, one, one]
    assert torch.equal(add([one], [one])[0], 2 * one)


def test_a_gradient_is_really_computed_as_often_as_the_work_says():
    trainer = trainer_of()
    Counting.losses = 0
    replica = Replica(trainer, CPU)
    assert Counting.losses == WARM_UP
    seconds, loss = replica.run(0, 5, keep=True)
    assert Counting.losses == WARM_UP + 5
    assert seconds > 0
    five = replica.total(CPU)
    replica.begin()
    assert replica.run(0, 1, keep=True)[1] == loss
    assert all(torch.equal(a, b) for a, b in zip(five, replica.total(CPU), strict=True))


def test_workers_of_one_device_share_a_replica():
    Counting.losses = 0
    assert list(replicate(trainer_of(), [Worker(), Worker(work=3), Worker()])) == ["cpu"]
    assert Counting.losses == WARM_UP


def test_the_warm_up_leaves_the_model_as_it_is():
    class Stateful(nn.Linear):
        calls = 0

        def forward(self, inputs):
            self.calls += 1
            return super().forward(inputs)

    trainer = trainer_of(lambda: Stateful(2, 3))
    Replica(trainer, CPU)
    Replica(trainer, ELSEWHERE)
    assert trainer.model.calls == 0


def test_a_replica_elsewhere_follows_weights_and_buffers():
    trainer = trainer_of(lambda: nn.Sequential(nn.Linear(2, 4), nn.BatchNorm1d(4).eval(), nn.Linear(4, 3)))
    replica = Replica(trainer, ELSEWHERE)
    for _ in range(2):
        trainer.step()
        trainer.model[1].running_mean.fill_(3.0)
        replica.begin()
        for a, b in zip(replica._copy.state_dict().values(), trainer.model.state_dict().values(), strict=True):
            assert torch.equal(a, b)
            assert a.data_ptr() != b.data_ptr()
        trainer.reset()


def test_dropout_is_keyed_by_the_seed_the_round_and_the_task():
    def dropped(seed, device):
        trainer = trainer_of(lambda: nn.Sequential(nn.Linear(2, 50), nn.Dropout(0.5), nn.Linear(50, 3)), seed=seed)
        replica, masks = Replica(trainer, device), []
        replica._model[1].register_forward_hook(lambda *args: masks.append((args[2] == 0).numpy().tobytes()))
        for _ in range(2):
            for task in (2, 0, 1):
                replica.run(task, keep=True)
            trainer.apply(Gradient(1.0, replica.total(CPU)))
            replica.begin()
        return masks

    torch.manual_seed(7)
    before = torch.get_rng_state()
    first = dropped(3, CPU)
    assert torch.equal(torch.get_rng_state(), before)
    assert len(set(first)) == 6
    torch.manual_seed(8)
    assert dropped(3, ELSEWHERE) == first
    assert not set(dropped(4, CPU)) & set(first)


class Huge(nn.Linear):
    """Its outputs need more memory than there is."""

    def forward(self, inputs):
        return super().forward(inputs) + torch.empty(2**46, device=inputs.device).sum()


def test_memory_that_is_not_there():
    with pytest.raises(MemoryError, match="a single task does not fit into the memory of cpu"):
        Replica(trainer_of(lambda: Huge(2, 3)), CPU)


@pytest.mark.gpu
def test_memory_that_a_gpu_does_not_have():
    with pytest.raises(MemoryError, match="a single task does not fit into the memory of cuda:0"):
        Replica(trainer_of(lambda: Huge(2, 3)), torch.device("cuda:0"))


@pytest.mark.gpu
def test_tasks_on_a_gpu_have_the_same_gradients():
    trainer = trainer_of()
    for ours, theirs in zip(gradient_of(trainer, torch.device("cuda:0")), gradient_of(trainer), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-5)


def test_a_model_that_does_not_take_the_data():
    with pytest.raises(ValueError, match=r"the model of .* does not take its data: mat1 and mat2 shapes cannot be"):
        Replica(trainer_of(lambda: nn.Linear(7, 3)), CPU)
