"""A training whose processes write what they compute in each round, before and after it is known
whether the round counts, so that it can be seen afterwards what each step used.
"""

import json
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ata_gym.utils.files.atomic import write_whole
from tests.cluster.disturbances import STOP_SECONDS, Kind

BUDGET = 8
SAMPLES = 50
SAMPLES_OF_TASK = 4
SECONDS = (0.001, 0.002, 0.004)
"""How long a task takes on each worker."""
_FARTHEST = 1e-12
"""How far weights may be from the weights of one process."""


def parts_of_training() -> tuple[Any, Any, Any]:
    """The data, the model in double precision, and its optimiser."""
    import torch
    from torch import nn
    from torch.utils.data import TensorDataset

    numbers = torch.arange(SAMPLES)
    waves = torch.sin(numbers[:, None] * torch.tensor([1.0, 2.0, 3.0, 5.0], dtype=torch.float64))
    pairs = TensorDataset(numbers, waves)
    torch.manual_seed(0)
    # It is convex, so that rounding does not grow from step to step.
    model = nn.Sequential(nn.BatchNorm1d(4, affine=False), nn.Linear(4, 1)).double()
    return pairs, model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def loss_of(model: Any, x: Any) -> Any:
    return (model(x) - x.sum(1, keepdim=True)).square().mean()


def weights_of(model: Any) -> list[float]:
    return [number for weight in model.parameters() for number in weight.flatten().tolist()]


class Journal:
    """What all processes of a training write into a folder, in whole lines."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end = folder / "rounds"

    def writer(self, name: str) -> Callable[..., None]:
        """Writes a line of this process."""
        # A process that is killed may leave a part of a line.
        file = (self._folder / f"{name.replace(' ', '-')}-{os.getpid()}.jsonl").open("a")

        def tell(**what: Any) -> None:
            line = {"name": name, "pid": os.getpid(), "time": time.time(), **what}
            file.write(json.dumps(line) + "\n")
            file.flush()

        return tell

    def lines(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for path in sorted(self._folder.glob("*.jsonl"))
            for line in path.read_text().splitlines(keepends=True)
            if line.endswith("\n")
        ]

    def committed(self) -> int:
        """The last round that counted."""
        return max((line["round"] for line in self.lines() if "committed" in line), default=0)

    def let_end(self, rounds: int) -> None:
        """Let the training end after so many rounds more."""
        last = self.committed() + rounds
        write_whole(self._end, lambda path: path.write_text(str(last)))

    def is_over(self, rounds: int) -> bool:
        """Whether the training has had all its rounds."""
        return self._end.exists() and rounds >= int(self._end.read_text())


def train(
    journal: Journal,
    tell: Callable[..., None],
    allocator: Any,
    training: tuple[Any, Any, Any],
    seconds: float,
    quorum: Callable[[], int],
    after_step: Callable[[], None],
    rounds_of_step: int = 1,
) -> None:
    """Train until the journal says that it is over.

    ``quorum`` gives the number of the processes that compute a round together, and ``after_step``
    is called after each round.
    """
    from torch.utils.data import DataLoader

    from ata_gym.cluster import TaskSampler

    pairs, model, optimizer = training
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs, samples=SAMPLES_OF_TASK))
    while not journal.is_over(allocator.rounds):
        samples: list[int] = []
        with allocator.round(model) as share:
            # The state may have come from another replica only now.
            buffers = [buffer.clone() for buffer in model.buffers()]
            older = [old.gradient for old in allocator._gradients._old_gradients]
            for numbers, x in share.take(loader):
                samples += numbers.tolist()
                time.sleep(seconds)
                share.backward(loss_of(model, x))
            attempt = {"round": allocator.rounds + 1, "quorum": quorum()}
            tell(computed=samples, rank=allocator._ranks.rank, **attempt)
            share.reduce()
        if not share.committed:
            assert all(map(_same, buffers, model.buffers()))
            assert all(map(_same, older, (weight.grad for weight in model.parameters())))
            tell(dropped=True, **attempt)
            continue
        if allocator.rounds % rounds_of_step == 0:
            optimizer.step()
            optimizer.zero_grad()
        assert allocator.rounds == attempt["round"]
        tell(
            committed=True,
            tasks=allocator.last.tasks,
            weights=weights_of(model),
            statistics=[buffer.tolist() for buffer in list(model.buffers())[:2]],
            loss=allocator.last.loss,
            **attempt,
        )
        after_step()
    tell(done=True, expected=allocator._allocator.expected_times())


def _same(tensor: Any, other: Any) -> bool:
    """Whether two tensors are the same, or neither of them is there."""
    if tensor is None or other is None:
        return tensor is other
    return bool(tensor.equal(other))


def alone(rounds: int, rounds_of_step: int = 1) -> list[dict[str, Any]]:
    """The samples, weights and loss of each round of one process that computes all tasks."""
    from types import SimpleNamespace

    import torch

    from ata_gym.cluster import TaskSampler

    torch.set_num_threads(1)
    pairs, model, optimizer = parts_of_training()
    lines = []
    for number in range(rounds):
        share = SimpleNamespace(tasks=BUDGET, first=0, done=0, orders=[])
        in_round = SimpleNamespace(budget=BUDGET, rounds=number, share=share)
        samples = []
        total = 0.0
        for batch in TaskSampler(in_round, pairs, samples=SAMPLES_OF_TASK):
            loss = loss_of(model, pairs[batch][1]) / BUDGET
            loss.backward()
            total += loss.item()
            samples += batch
        if (number + 1) % rounds_of_step == 0:
            optimizer.step()
            optimizer.zero_grad()
        lines.append({"samples": samples, "weights": weights_of(model), "loss": total})
    return lines


def check(
    lines: list[dict[str, Any]], kinds: Iterable[Kind], rounds_of_step: int = 1
) -> dict[str, Any]:
    """Fail unless each step that counts has the B tasks of its round, and one process's weights.

    A round that was begun again by others is checked each time. Nobody is believed to be slower
    than a process that was disturbed in these ways can have been.

    Returns:
        What happened, in numbers.
    """
    rounds = max(line["round"] for line in lines if "committed" in line)
    expected = alone(rounds, rounds_of_step)
    farthest = 0.0
    for number in range(1, rounds + 1):
        right = expected[number - 1]
        of_round = [line for line in lines if line.get("round") == number]
        committed = [line for line in of_round if "committed" in line]
        assert committed, f"nobody committed round {number}"
        for line in committed:
            _check_tasks(line, of_round, right["samples"])
            apart = np.abs(np.subtract(line["weights"], right["weights"])).max()
            farthest = max(farthest, float(apart))
            assert apart <= _FARTHEST, f"round {number}: weights are {apart} apart"
            np.testing.assert_allclose(line["loss"], right["loss"], rtol=0, atol=_FARTHEST)
            np.testing.assert_allclose(line["statistics"], committed[0]["statistics"], atol=1e-9)
    longest = 1.0
    if Kind.STOP in kinds:
        longest += STOP_SECONDS[1]
    for line in lines:
        for worker, mean in line.get("expected", {}).items():
            assert 0.0 < mean < longest, f"{worker} is believed to need {mean} s for a task"
    steps = sorted(line["time"] for line in lines if "committed" in line)
    computed = {(line["round"], line["quorum"]) for line in lines if "computed" in line}
    return {
        "rounds": rounds,
        "rounds begun again": len(computed) - rounds,
        "longest time between two steps, in s": round(float(np.diff(steps).max()), 1),
        "greatest difference of a weight": farthest,
    }


def _check_tasks(line: dict[str, Any], of_round: list[dict[str, Any]], right: list[int]) -> None:
    """Fail unless the ranks of a step have computed the samples of its round, each once."""
    assert sum(line["tasks"].values()) == BUDGET
    samples: list[int] = []
    for rank, name in enumerate(line["tasks"]):
        wanted = line["tasks"][name] * SAMPLES_OF_TASK
        part = [
            other
            for other in of_round
            if "computed" in other and (other["quorum"], other["name"]) == (line["quorum"], name)
        ]
        (only_part,) = part
        assert only_part["rank"] == rank
        assert len(only_part["computed"]) == wanted
        samples += only_part["computed"]
    assert samples == right, (line["round"], line["quorum"])
