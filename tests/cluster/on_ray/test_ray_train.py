"""A round inside Ray Train: the script trains, and its checkpoint goes on with another number of
workers, which train as one process does.
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

BUDGET = 6
WORKERS = 3
SAVED = 4
ROUNDS = 8
"""The rounds of the checkpoint, and those after which the training ends."""
SCRIPT = Path(__file__).parents[3] / "notebooks" / "cluster" / "train_on_ray_train.py"


def make_parts():
    """Functions that Ray sends by value: its workers cannot import this file."""

    def problem(state):
        """The data, and the model and optimizer of a checkpoint of the script, in double precision,
        where rounding is small.
        """
        import torch

        from ata_gym.training import make_problem

        digits = make_problem("digits")
        x, y = digits.training_samples(range(digits.size))
        model = digits.build().double()
        optimizer = torch.optim.Adam(model.parameters())
        weights = state["model"].items()
        model.load_state_dict({name.removeprefix("module."): value for name, value in weights})
        optimizer.load_state_dict(state["optimizer"])
        return torch.utils.data.TensorDataset(x.double(), y), model, optimizer

    def train(options):
        import os
        from pathlib import Path

        import numpy as np
        import ray.train
        import torch
        from ray.train.torch import prepare_model
        from torch.nn.functional import cross_entropy
        from torch.utils.data import DataLoader

        from ata_gym.cluster import TaskSampler, TorchAllocator

        torch.set_num_threads(1)
        rank = ray.train.get_context().get_world_rank()
        with ray.train.get_checkpoint().as_directory() as folder:
            state = torch.load(Path(folder, "state.pt"), weights_only=True)
        data, plain, optimizer = problem(state)
        model = prepare_model(plain)
        name = f"worker {rank}"
        limits = {"worker 0": (1, 1)}
        allocator = TorchAllocator(options["budget"], limits=limits, name=name)
        allocator.load_state_dict(state["allocator"])
        loader = DataLoader(data, batch_sampler=TaskSampler(allocator, data))
        first_round = allocator.rounds
        shares = []
        while allocator.rounds < options["rounds"]:
            with allocator.round(model) as share:
                for x, y in share.take(loader):
                    share.backward(cross_entropy(model(x), y))
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

    return problem, train


def run_script(out, monkeypatch):
    """Train in two workers of Ray Train, and return the states that were saved, in their order."""
    options = ("--workers", "2", "--steps", str(SAVED), "--budget", str(BUDGET))
    more = ("--save-every", str(SAVED - 1), "--out", str(out))
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *options, *more])
    runpy.run_path(str(SCRIPT), run_name="__main__")
    states = [torch.load(path, weights_only=True) for path in out.rglob("state.pt")]
    return sorted(states, key=lambda state: state["allocator"]["rounds"])


def go_on(train, out, folder):
    """Go on from the last checkpoint of a run with other workers, and return what each has."""
    from ray.train import RunConfig, ScalingConfig
    from ray.train.torch import TorchConfig, TorchTrainer

    TorchTrainer(
        train,
        train_loop_config={"budget": BUDGET, "rounds": ROUNDS, "folder": str(folder)},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=WORKERS, resources_per_worker={"CPU": 0.5}),
        run_config=RunConfig(name=out.name, storage_path=str(out.parent)),
    ).fit()
    return [np.load(folder / f"rank-{rank}.npz") for rank in range(WORKERS)]


def alone(problem, state):
    data, model, optimizer = problem(state)
    order = TaskSampler(SimpleNamespace(budget=BUDGET), data)
    for number in range(SAVED, ROUNDS):
        x, y = data[order.samples_from(number * BUDGET, BUDGET)]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    return torch.cat([each.detach().flatten() for each in model.parameters()]).numpy()


@pytest.mark.usefixtures("cluster")
@pytest.mark.filterwarnings("ignore::DeprecationWarning:ray")  # Ray uses what it deprecates
def test_the_script_trains_and_other_workers_go_on_from_its_checkpoint_as_one_process_does(
    tmp_path, monkeypatch, capsys
):
    """The two trainings share their start, since each of them takes ten processes of Ray."""
    pytest.importorskip("sklearn")
    out = tmp_path / "run"
    states = run_script(out, monkeypatch)
    told = capsys.readouterr().out
    # Where the machine is busy, one of them may have no task.
    (tasks,) = re.findall(rf"^round {SAVED}: .*/0 (\d)\b.*/1 (\d)\b", told, re.MULTILINE)
    assert sum(map(int, tasks)) == BUDGET
    assert [state["allocator"]["rounds"] for state in states] == [SAVED - 1, SAVED]
    problem, train = make_parts()
    expected = alone(problem, states[-1])
    for rank in go_on(train, out, tmp_path):
        np.testing.assert_allclose(rank["weights"], expected, rtol=0, atol=1e-12)
        assert rank["first_round"] == SAVED
        assert int(rank["workers"]) == WORKERS
        assert len(rank["shares"]) == ROUNDS - SAVED
        assert (rank["shares"].sum(1) == BUDGET).all()
        assert (rank["shares"].min(1) < rank["shares"].max(1)).all()
