"""A rank is killed in the middle of training, and torchrun starts all of them again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.waiting import PATIENCE

RANKS = 3


def attempt(rng: np.random.Generator, folder: Path, kills: int = 2, rounds: int = 60) -> int:
    """Kill random ranks in random moments; how many kills met a running round."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    script = Path(__file__).with_name("elastic.py")
    command += [f"--max-restarts={kills}", "--monitor-interval=0.1", str(script), str(folder), str(rounds)]
    environment = os.environ | {
        "OMP_NUM_THREADS": "1",
        "GLOO_SOCKET_IFNAME": "lo",
        "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1",
    }
    environment["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)
        try:
            met = sum(_kill(rng, folder, number, process, rounds) for number in range(kills))
            code = process.wait(PATIENCE)
        finally:
            if process.poll() is None:
                process.terminate()  # its ranks have sessions of their own, and would outlive it if it were killed
                process.wait(PATIENCE)
    assert code == 0, (folder / "output.txt").read_text()[-30000:]
    check(folder, rounds)
    return met


def _kill(rng: np.random.Generator, folder: Path, number: int, process: Any, rounds: int) -> bool:
    """Kill a rank of an attempt some time after it began; whether it was in its rounds."""
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end and process.poll() is None:
        told = [line for rank in range(RANKS) for line in _lines(folder / f"told-{number}-{rank}.jsonl")]
        begun = {line["rank"]: line["pid"] for line in told if "began" in line}
        if len(begun) == RANKS:
            time.sleep(rng.uniform(0.0, 0.25))
            before = max((line.get("round", 0) for line in told), default=0)
            os.kill(begun[int(rng.integers(RANKS))], signal.SIGKILL)
            return before < rounds
        time.sleep(0.01)
    raise AssertionError(f"attempt {number} did not begin: {(folder / 'output.txt').read_text()[-30000:]}")


def check(folder: Path, rounds: int) -> None:
    """The steps that count are those of one process: right samples, right model, right loss; and no belief is wrong."""
    from ata_gym.cluster import TaskSampler
    from tests.cluster.torchrun import elastic

    told = [line for path in sorted(folder.glob("told-*")) for line in _lines(path)]
    finished = [line for line in told if "round" in line]
    steps: dict[int, list[dict[str, Any]]] = {}
    for number in range(1, rounds + 1):  # a round that was done again after a kill counts as it was done last
        last = max(line["attempt"] for line in finished if line["round"] == number)
        steps[number] = [line for line in finished if (line["round"], line["attempt"]) == (number, last)]
    order = TaskSampler(SimpleNamespace(budget=elastic.BUDGET), elastic.SAMPLES)
    for number, lines in steps.items():
        assert sorted(line["rank"] for line in lines) == list(range(RANKS)), f"round {number}: {lines}"
        samples = [sample for line in sorted(lines, key=lambda line: line["rank"]) for sample in line["samples"]]
        assert samples == order.samples_from((number - 1) * elastic.BUDGET, elastic.BUDGET), f"round {number}"
        assert len({line["weights"] for line in lines}) == 1, f"round {number}: gradients of several models"
    losses = alone(rounds, order)
    np.testing.assert_allclose([lines[0]["loss"] for lines in steps.values()], losses, rtol=1e-4)
    done = [line for line in told if "done" in line]
    assert len(done) == RANKS
    for line in done:
        for worker, mean in line["expected"].items():
            assert 0.0 < mean < 1.0, f"{worker} is believed to need {mean} s for a task of milliseconds"


def alone(rounds: int, order: Any) -> list[float]:
    """The losses of the same training in this process."""
    import torch

    from tests.cluster.torchrun import elastic

    model = elastic.model_of(0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for number in range(rounds):
        chosen = torch.tensor(order.samples_from(number * elastic.BUDGET, elastic.BUDGET))
        x = torch.sin(chosen[:, None] * torch.tensor([1.0, 2.0, 3.0]))
        loss = (model(x)[:, 0] - x.sum(1)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def _lines(path: Path) -> list[dict[str, Any]]:
    """What a rank has written, but for a line that a kill cut off."""
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]
