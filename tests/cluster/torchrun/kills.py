"""Ranks are killed in the middle of training, and torchrun starts all of them again."""

import os
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np

from tests.cluster.disturbances import Kind, disturb, drawn_kinds
from tests.cluster.torchrun.journal import BUDGET, SECONDS, Journal, check, parts_of_training, train
from tests.cluster.torchrun.processes import as_torchrun
from tests.waiting import PATIENCE, until

TIMEOUT_SECONDS = 60.0
"""The timeout of the process group."""
_ENDS = {Kind.KILL: 1, Kind.START: 2, Kind.STOP: 0, Kind.TERM: 1}
"""How often torchrun starts all ranks again for a kind."""


def train_rank(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    journal = Journal(folder)
    tell = journal.writer(f"worker {rank}")
    tell(starts=attempt)

    import torch
    import torch.distributed as dist

    from ata_gym.cluster import TorchAllocator
    from ata_gym.utils.files.atomic import write_whole

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=TIMEOUT_SECONDS))
    pairs, model, optimizer = parts_of_training()
    allocator = TorchAllocator(
        BUDGET, "certainty-equivalence", name=f"worker {rank}", check_every=1
    )
    checkpoint = folder / "checkpoint.pt"
    parts = {"model": model, "optimizer": optimizer, "allocator": allocator}
    if checkpoint.exists():
        state = torch.load(checkpoint, weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])

    def save() -> None:
        if rank == 0:
            state = {name: part.state_dict() for name, part in parts.items()}
            write_whole(checkpoint, lambda path: torch.save(state, path))

    train(
        journal,
        tell,
        allocator,
        (pairs, model, optimizer),
        SECONDS[rank % len(SECONDS)],
        lambda: attempt,
        save,
    )


class _Ranks:
    """The ranks that torchrun has started last."""

    def __init__(self, folder: Path, size: int, running: Any) -> None:
        self.names = tuple(f"worker {rank}" for rank in range(size))
        self._journal = Journal(folder)
        self._running = running
        self._attempt = 0

    def _pids(self) -> dict[str, int]:
        """The processes of this attempt."""
        return {
            line["name"]: line["pid"]
            for line in self._journal.lines()
            if line.get("starts") == self._attempt
        }

    def _until(self, happens: Callable[[], Any], about: str) -> Any:
        def happens_or_ended() -> Any:
            return self._running.done() or happens()

        answer = until(happens_or_ended, about=f"attempt {self._attempt}: {about}")
        assert not self._running.done(), self._running.result()
        return answer

    def wait_for_all(self) -> None:
        def all_take_part() -> bool:
            steps = Counter(line["pid"] for line in self._journal.lines() if "committed" in line)
            pids = self._pids()
            # After three steps there is a checkpoint of two.
            return set(pids) == set(self.names) and all(steps[pid] > 2 for pid in pids.values())

        self._until(all_take_part, "all ranks take part")

    def pid(self, name: str) -> int:
        return self._pids()[name]

    def replaced(self, name: str) -> int:
        self._attempt += 1
        pid: int = self._until(lambda: self._pids().get(name), f"{name} is started again")
        return pid


def attempt(
    rng: np.random.Generator,
    folder: Path,
    kinds: Sequence[Kind] = (),
    *,
    ranks: int = 3,
    rounds: int = 20,
    say: Callable[[str], None] = lambda _: None,
) -> dict[str, Any]:
    """Train while ranks are disturbed, by default twice, and so many rounds more."""
    kinds = kinds or drawn_kinds(rng, 2)
    restarts = sum(map(_ENDS.__getitem__, kinds))
    with as_torchrun(train_rank, folder, size=ranks, restarts=restarts) as running:
        try:
            disturb(rng, _Ranks(folder, ranks, running), kinds, say)
        finally:
            Journal(folder).let_end(rounds)
        running.result(PATIENCE)
    return check(Journal(folder).lines(), kinds)
