"""The code that a sweep sends to the nodes of a Ray cluster: the mailbox, and the function that plays a job.

It imports ata-gym only inside functions, since a node may have another ata-gym, or none.
"""

import os
import pickle
import platform
import traceback
from collections import Counter
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

MOST_STARTS = 2  # how often a job may start on one node without a new checkpoint

_REPORT_EVERY = 0.5  # seconds between two reports of the rounds played


class Mailbox:
    """Exchanges checkpoints, numbers of rounds and the request to stop between jobs and the driver, on its node.

    A job has the number of its place in the list of the driver. A job that is tried again, since its node was lost,
    goes on from the newest checkpoint here.
    """

    def __init__(self, checkpoints: dict[int, bytes]) -> None:
        self.newest = checkpoints
        self.unread: set[int] = set()
        self.rounds: dict[int, int] = {}
        self.starts: dict[int, Counter[str]] = {}
        self.stopped = False

    def begin(self, place: int, node: str) -> tuple[bytes | None, bool]:
        """Begin a job on a node; return its newest checkpoint, and whether its process was killed too often."""
        starts = self.starts.setdefault(place, Counter())
        starts[node] += 1
        return self.newest.get(place), starts[node] > MOST_STARTS

    def report(self, place: int, rounds: int) -> bool:
        """Note how many rounds a job has played; return whether it shall stop."""
        self.rounds[place] = rounds
        return self.stopped

    def keep(self, place: int, checkpoint: bytes) -> None:
        """Keep a checkpoint in place of the last one."""
        self.newest[place] = checkpoint
        self.unread.add(place)
        self.starts[place] = Counter()

    def read(self) -> tuple[dict[int, int], dict[int, bytes]]:
        """Return the numbers of rounds and the checkpoints that came since the last call."""
        rounds, checkpoints = self.rounds, {place: self.newest[place] for place in self.unread}
        self.rounds, self.unread = {}, set()
        return rounds, checkpoints

    def forget(self, place: int) -> None:
        """Drop the checkpoint of a job that has ended."""
        self.newest.pop(place, None)
        self.unread.discard(place)

    def stop(self) -> set[int]:
        """Ask all jobs to save a checkpoint and end; return the places of those that have begun."""
        self.stopped = True
        return set(self.starts)


def play_there(
    mailbox: Any, place: int, policy: str, player: str, needed: dict[str, Any], threads: dict[str, str | None],
    save_every: float, pickled: bytes,
) -> dict[str, Any] | None:  # fmt: skip
    """Play a job in a temporary folder of this node, from its newest checkpoint.

    - ``place``: the place of the job in the mailbox.
    - ``policy``, ``player``: the name of the policy, and that of the module that plays it.
    - ``needed``: the provenance that the code must have here; of the machine, only the kind counts.
    - ``threads``: variables of the environment, which say to numerical libraries how many threads they may use, as they
      are on the driver; Ray has changed them.
    - ``pickled``: the experiment, and the kind of run to record.

    Returns None if it was asked to stop; ``{"refused": reason, "node": name}`` if the code is another one; ``{"killed":
    True}`` if its process was killed too often; otherwise the result, the tasks of the workers (None if these are in
    the result), the seconds spent and the machine.
    """
    ray: Any = import_module("ray")

    for name, value in threads.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value
    reason, machine = _difference(policy, player, needed)
    if reason:
        return {"refused": reason, "node": f"{platform.node()} ({ray.util.get_node_ip_address()})"}
    from ata_gym.bench.experiment.run import Job, play_to_end  # noqa: PLC0415
    from ata_gym.bench.experiment.store import Folder  # noqa: PLC0415
    from ata_gym.utils.errors import portable  # noqa: PLC0415
    from ata_gym.utils.sealed import read_sealed, save_checkpoint  # noqa: PLC0415

    newest, killed = ray.get(mailbox.begin.remote(place, ray.get_runtime_context().get_node_id()))
    if killed:
        return {"killed": True}
    stop, reported = False, monotonic()

    def progress(rounds: int) -> None:
        nonlocal stop, reported
        if monotonic() - reported >= _REPORT_EVERY:
            stop, reported = ray.get(mailbox.report.remote(place, rounds)), monotonic()

    def saved(path: Path) -> None:
        ray.get(mailbox.keep.remote(place, read_sealed(path)))

    experiment, run_of = pickle.loads(pickled)
    with TemporaryDirectory(prefix="ata-gym-") as temporary:
        folder = Folder(Path(temporary))
        result, checkpoint = folder.result(policy), folder.checkpoint(policy)
        for file in (result, checkpoint):
            file.parent.mkdir()
        if newest is not None:
            save_checkpoint(checkpoint, newest)
        try:
            job = Job(experiment, policy, folder, run_of)
            seconds = play_to_end(job, save_every=save_every, progress=progress, stop=lambda: stop, saved=saved)
        except Exception as error:  # a policy of the user's may raise anything
            sent = portable(error)
            sent.add_note(f"On the node, this was:\n{traceback.format_exc()}")  # Python itself sends no traceback
            raise sent  # noqa: B904 - it is the error, or has it as its cause
        if seconds is None:
            return None
        tasks = folder.allocations(policy)
        allocations = tasks.read_bytes() if tasks.exists() else None
        return {"seconds": seconds, "machine": machine, "result": result.read_bytes(), "allocations": allocations}


def _difference(policy: str, player: str, needed: dict[str, Any]) -> tuple[str, str]:
    try:
        from ata_gym.bench.experiment.provenance import changed, provenance  # noqa: PLC0415

        found = provenance(policy, player)
        code = changed(found, needed, policy)
    except Exception as error:  # a user's module may raise anything
        return f"{policy} cannot be made there ({type(error).__name__}: {error})", ""
    machine = found["machine"]
    found = {**found, "machine": machine.partition(",")[0]}
    unlike = [key for key in needed if key != "code" and found.get(key) != needed[key]]
    others = [f"{key} is {found.get(key)} there and {needed[key]} here" for key in unlike]
    return ", ".join([f"{code} is another one"] * bool(code) + others), machine
