"""A rank is killed in the middle of training, and torchrun starts all of them again.

Each rank writes what it computes, before and after each round, so that it can be seen afterwards
what a round used.
"""

import json
import os
import signal
import time
import zlib
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster.torchrun.processes import as_torchrun, on_ranks
from tests.waiting import PATIENCE, until

BUDGET = 6
SAMPLES = 40
TIMES = (0.001, 0.002, 0.004)


def train(folder: Path, rounds: int) -> None:
    import torch
    import torch.distributed as dist
    from torch.utils.data import DataLoader, TensorDataset

    from ata_gym.cluster import TaskSampler, TorchAllocator
    from ata_gym.utils.files.atomic import write_whole

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    if not dist.is_initialized():
        dist.init_process_group("gloo")
    rank = dist.get_rank()
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    torch.manual_seed(0)
    numbers = torch.arange(SAMPLES)
    pairs = TensorDataset(numbers, torch.sin(numbers[:, None] * torch.tensor([1.0, 2.0, 3.0])))
    model = torch.nn.Linear(3, 1)
    checkpoint = folder / "checkpoint.pt"
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    allocator = TorchAllocator(BUDGET, "certainty-equivalence", name=f"worker {rank}")
    parts = {"model": model, "optimizer": optimizer, "allocator": allocator}
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
    loader = DataLoader(pairs, batch_sampler=TaskSampler(allocator, pairs))
    with (folder / f"told-{attempt}-{rank}.jsonl").open("a") as file:

        def tell(**what: Any) -> None:
            file.write(
                json.dumps({"attempt": attempt, "rank": rank, "pid": os.getpid(), **what}) + "\n",
            )
            file.flush()

        tell(began=allocator.rounds)
        while allocator.rounds < rounds:
            weights = zlib.crc32(model.weight.detach().numpy().tobytes())
            samples = []
            with allocator.round(model) as share:
                for number, x in share.take(loader):
                    samples.append(int(number))
                    time.sleep(TIMES[rank % 3])
                    share.backward((model(x) - x.sum()).square().mean())
                share.reduce()
            optimizer.step()
            optimizer.zero_grad()
            tell(round=allocator.rounds, samples=samples, weights=weights, loss=allocator.last.loss)
            if rank == 0:
                state = {name: part.state_dict() for name, part in parts.items()}
                write_whole(checkpoint, lambda path, state=state: torch.save(state, path))
        tell(done=True, expected=allocator._allocator.expected_times())


def attempt(
    rng: np.random.Generator,
    folder: Path,
    ranks: int = 3,
    kills: int = 2,
    rounds: int = 60,
) -> None:
    def begun(number: int) -> list[int]:
        lines = [line for path in folder.glob(f"told-{number}-*") for line in _lines(path)]
        return [
            line["pid"] for line in sorted(lines, key=lambda line: line["rank"]) if "began" in line
        ]

    with as_torchrun(train, folder, rounds, size=ranks, restarts=kills) as running:
        for number in range(kills):
            until(
                lambda number=number: running.done() or len(begun(number)) == ranks,
                about=f"attempt {number}",
            )
            assert not running.done(), running.result()
            time.sleep(rng.uniform(0.0, 0.25))
            os.kill(begun(number)[int(rng.integers(ranks))], signal.SIGKILL)
        running.result(PATIENCE)
    _check(folder, ranks, rounds)


def _check(folder: Path, ranks: int, rounds: int) -> None:
    """Fail unless the steps that count are the steps of one process, and no belief is wrong.

    They have the same samples, model and loss.
    """
    (folder / "alone").mkdir()
    on_ranks(1, train, folder / "alone", rounds)
    alone = [line for line in _lines(folder / "alone" / "told-0-0.jsonl") if "round" in line]
    lines_of_all = [line for path in sorted(folder.glob("told-*")) for line in _lines(path)]
    attempts = max(line["attempt"] for line in lines_of_all)
    for expected in alone:
        lines = [line for line in lines_of_all if line.get("round") == expected["round"]]
        # a round that was done again counts as it was done last
        last = max(line["attempt"] for line in lines)
        lines = sorted(
            (line for line in lines if line["attempt"] == last),
            key=lambda line: line["rank"],
        )
        samples = [sample for line in lines for sample in line["samples"]]
        if len(lines) < ranks and last < attempts:
            # a rank was killed between the end of the round and its line
            assert set(samples) <= set(expected["samples"]), lines
        else:
            assert [line["rank"] for line in lines] == list(range(ranks)), lines
            assert samples == expected["samples"], lines
        assert len({line["weights"] for line in lines}) == 1, (
            f"gradients of several models: {lines}"
        )
        np.testing.assert_allclose([line["loss"] for line in lines], expected["loss"], rtol=1e-4)
    done = [line for line in lines_of_all if "done" in line]
    assert (len(alone), len(done)) == (rounds, ranks)
    for line in done:
        for worker, mean in line["expected"].items():
            assert 0.0 < mean < 1.0, (
                f"{worker} is believed to need {mean} s for a task of milliseconds"
            )


def _lines(path: Path) -> list[dict[str, Any]]:
    if path.exists():
        text = path.read_text()
    else:
        text = ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
