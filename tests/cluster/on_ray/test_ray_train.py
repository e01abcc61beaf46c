"""A round inside Ray Train: workers of unequal shares train as one process does, and a checkpoint
of Ray Train goes on with another number of workers.
"""

import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("ray", reason="the extra cluster")
pytest.importorskip("ray.train", reason="the extra integrations", exc_type=ImportError)
torch = pytest.importorskip("torch")

from ata_gym.cluster import TaskSampler  # noqa: E402

BUDGET = 8
SCRIPT = Path(__file__).parents[3] / "notebooks" / "cluster" / "train_on_ray_train.py"


def make_parts():
    """Functions that Ray sends by value: its workers cannot import this file."""

    def problem():
        import torch

        torch.manual_seed(0)
        x = torch.randn(40, 6, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        layers = (torch.nn.Linear(6, 7), torch.nn.Tanh(), torch.nn.Linear(7, 1))
        model = torch.nn.Sequential(*layers).double()
        return torch.utils.data.TensorDataset(x, x.sum(1, keepdim=True).sin()), model

    def train(options):
        import os
        import tempfile
        from pathlib import Path

        import numpy as np
        import ray.train
        import torch
        from ray.train.torch import prepare_model
        from torch.nn.functional import mse_loss
        from torch.utils.data import DataLoader

        from ata_gym.cluster import TaskSampler, TorchAllocator

        torch.set_num_threads(1)
        rank = ray.train.get_context().get_world_rank()
        data, plain = problem()
        model = prepare_model(plain)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        name = f"worker {rank}"
        allocator = TorchAllocator(options["budget"], "thompson", warm_up=0, seed=1, name=name)
        loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data))
        parts = {"model": plain, "optimizer": optimizer, "allocator": allocator}
        checkpoint = ray.train.get_checkpoint()
        if checkpoint is not None:
            with checkpoint.as_directory() as folder:
                states = torch.load(Path(folder, "states.pt"), weights_only=True)
            for each, part in parts.items():
                part.load_state_dict(states[each])
        first_round = allocator.rounds
        shares = []
        while allocator.rounds < options["rounds"]:
            with allocator.round(model) as share:
                for x, y in share.take(loader):
                    share.backward(mse_loss(model(x), y))
                share.reduce()
            optimizer.step()
            optimizer.zero_grad()
            shares.append(list(allocator.last.tasks.values()))
        np.savez(
            Path(options["folder"], f"rank-{rank}.npz"),
            weights=torch.cat([each.detach().flatten() for each in plain.parameters()]).numpy(),
            shares=shares,
            first_round=first_round,
            workers=os.environ["WORLD_SIZE"],
        )
        with tempfile.TemporaryDirectory() as folder:
            saved = None
            if rank == 0:
                states = {each: part.state_dict() for each, part in parts.items()}
                torch.save(states, Path(folder, "states.pt"))
                saved = ray.train.Checkpoint.from_directory(folder)
            ray.train.report({"rounds": allocator.rounds}, checkpoint=saved)

    return problem, train


def fit(train, folder, workers, rounds):
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    result = TorchTrainer(
        train,
        train_loop_config={"budget": BUDGET, "rounds": rounds, "folder": str(folder)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=workers, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(name="run", storage_path=str(folder / "storage")),
    ).fit()
    assert result.metrics["rounds"] == rounds
    return [np.load(folder / f"rank-{rank}.npz") for rank in range(workers)]


def alone(problem, rounds):
    data, model = problem()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    order = TaskSampler(SimpleNamespace(budget=BUDGET), data)
    for number in range(rounds):
        x, y = data[order.samples_from(number * BUDGET, BUDGET)]
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()]).numpy()


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # Ray uses what it deprecates
def test_ray_train_trains_as_one_process_and_goes_on_from_its_checkpoint_with_other_workers(
    tmp_path,
):
    problem, train = make_parts()
    for workers, rounds, first_round in ((2, 5, 0), (1, 9, 5)):
        expected = alone(problem, rounds)
        for rank in fit(train, tmp_path, workers, rounds):
            np.testing.assert_allclose(rank["weights"], expected, rtol=0, atol=1e-12)
            assert rank["first_round"] == first_round
            assert int(rank["workers"]) == workers
            assert (rank["shares"].sum(1) == BUDGET).all()
            assert workers == 1 or len(np.unique(rank["shares"], axis=0)) > 1


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")
def test_the_script_trains_and_leaves_a_checkpoint(tmp_path, monkeypatch, capsys):
    pytest.importorskip("sklearn")
    options = ("--workers", "2", "--steps", "4", "--budget", "6", "--save-every", "3")
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options, "--out", str(tmp_path / "run")])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    assert re.search(r"^round 4: .*/0 \d in .*/1 \d in ", capsys.readouterr().out, re.MULTILINE)
    states = [torch.load(path, weights_only=True) for path in tmp_path.rglob("state.pt")]
    assert sorted(state["allocator"]["rounds"] for state in states) == [3, 4]
