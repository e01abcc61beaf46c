"""The code that a sweep sends to the nodes of a Ray cluster.

It is the state of the sweep, and the function that plays a job. It imports ata-gym only inside
functions, since a node may have another ata-gym, or none.
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

MOST_STARTS = 2
"""How often a job may start on one node without a new checkpoint."""

_REPORT_EVERY = 0.5
"""The seconds between two reports of the rounds played."""


class SweepState:
    """The state of a sweep, which the jobs and the driver read and change, on the driver's node.

    It has checkpoints, numbers of rounds, and the request to stop. A job has the number of its
    place in the list of the driver. A job that is tried again, since its node was lost, goes on
    from the newest checkpoint here.
    """

    def __init__(self, checkpoints: dict[int, bytes]) -> None:
        self.checkpoints = checkpoints
        """The newest checkpoint of each job."""
        self.unread: set[int] = set()
        """The jobs whose newest checkpoint the driver has not read."""
        self.rounds: dict[int, int] = {}
        """The number of rounds that each job has played, since the driver has read them."""
        self.starts: dict[int, Counter[str]] = {}
        """How often each job has started on each node since its newest checkpoint."""
        self.stopped = False

    def begin(self, place: int, node: str) -> tuple[bytes | None, bool]:
        """Begin a job on a node.

        Returns:
            The newest checkpoint of the job, and whether its process was killed too often.
        """
        starts = self.starts.setdefault(place, Counter())
        starts[node] += 1
        return self.checkpoints.get(place), starts[node] > MOST_STARTS

    def report(self, place: int, rounds: int) -> bool:
        """Note how many rounds a job has played; return whether it shall stop."""
        self.rounds[place] = rounds
        return self.stopped

    def keep(self, place: int, checkpoint: bytes) -> None:
        """Keep a checkpoint in place of the last one."""
        self.checkpoints[place] = checkpoint
        self.unread.add(place)
        self.starts[place] = Counter()

    def read(self) -> tuple[dict[int, int], dict[int, bytes]]:
        """Return the numbers of rounds and the checkpoints that came since the last call."""
        rounds = self.rounds
        checkpoints = {place: self.checkpoints[place] for place in self.unread}
        self.rounds = {}
        self.unread = set()
        return rounds, checkpoints

    def forget(self, place: int) -> None:
        """Drop the checkpoint of a job that has ended."""
        self.checkpoints.pop(place, None)
        self.unread.discard(place)

    def stop(self) -> set[int]:
        """Ask all jobs to save a checkpoint and end; return the places of jobs that have begun."""
        self.stopped = True
        return set(self.starts)


def play_on_node(
    state: Any,
    place: int,
    policy: str,
    run_module: str,
    needed: dict[str, Any],
    threads: dict[str, str | None],
    save_every: float,
    pickled: bytes,
) -> dict[str, Any] | None:
    """Play a job in a temporary folder of this node, from its newest checkpoint.

    Args:
        state: Ray's handle of the state of the sweep.
        place: The place of the job in the list of the driver.
        policy: The name of the policy.
        run_module: The name of the module that plays it.
        needed: The provenance that the code must have here; of the machine, only the kind counts.
        threads: Variables of the environment, which say to numerical libraries how many threads
            they may use, as they are on the driver; Ray has changed them.
        save_every: The seconds between two checkpoints.
        pickled: The experiment, and the kind of run to record.

    Returns:
        None if the job was asked to stop; ``{"refused": reason, "node": name}`` if the code is
        another one; ``{"killed": True}`` if its process was killed too often; otherwise the result,
        the tasks of the workers (None if these are in the result), the seconds spent and the
        machine.
    """
    ray: Any = import_module("ray")

    _restore(threads)
    reason, machine = _difference(policy, run_module, needed)
    if reason:
        return {"refused": reason, "node": f"{platform.node()} ({ray.util.get_node_ip_address()})"}
    from ata_gym.bench.runner.policy_run import Job, play_to_end  # noqa: PLC0415
    from ata_gym.bench.store.folder import Folder  # noqa: PLC0415
    from ata_gym.utils.errors import portable  # noqa: PLC0415
    from ata_gym.utils.files.sealed import read_sealed, save_checkpoint  # noqa: PLC0415

    newest_checkpoint, killed = ray.get(
        state.begin.remote(place, ray.get_runtime_context().get_node_id()),
    )
    if killed:
        return {"killed": True}
    stop = False
    reported = monotonic()

    def progress(rounds: int) -> None:
        nonlocal stop, reported
        if monotonic() - reported >= _REPORT_EVERY:
            stop = ray.get(state.report.remote(place, rounds))
            reported = monotonic()

    def keep_checkpoint(path: Path) -> None:
        ray.get(state.keep.remote(place, read_sealed(path)))

    experiment, run_of = pickle.loads(pickled)
    with TemporaryDirectory(prefix="ata-gym-") as temporary:
        folder = Folder(Path(temporary))
        result = folder.result(policy)
        checkpoint = folder.checkpoint(policy)
        for file in (result, checkpoint):
            file.parent.mkdir()
        if newest_checkpoint is not None:
            save_checkpoint(checkpoint, newest_checkpoint)
        try:
            job = Job(experiment, policy, folder, run_of)
            seconds = play_to_end(
                job,
                save_every=save_every,
                progress=progress,
                stop=lambda: stop,
                saved=keep_checkpoint,
            )
        except Exception as error:
            # A policy of the user may raise anything. Python itself sends no traceback. What is
            # raised is the error, or has the error as its cause.
            portable_error = portable(error)
            portable_error.add_note(f"On the node, this was:\n{traceback.format_exc()}")
            raise portable_error  # noqa: B904
        if seconds is None:
            return None
        tasks = folder.allocations(policy)
        if tasks.exists():
            allocations = tasks.read_bytes()
        else:
            allocations = None
        return {
            "seconds": seconds,
            "machine": machine,
            "result": result.read_bytes(),
            "allocations": allocations,
        }


def _restore(variables: dict[str, str | None]) -> None:
    """Set variables of the environment, and remove those whose value is None."""
    for name, value in variables.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


def _difference(policy: str, run_module: str, needed: dict[str, Any]) -> tuple[str, str]:
    """How the code here differs from what is needed, empty if it does not; and the machine."""
    try:
        from ata_gym.bench.store.provenance import changed, provenance  # noqa: PLC0415

        actual = provenance(policy, run_module)
        code = changed(actual, needed, policy)
    except Exception as error:
        # A module of the user may raise anything.
        return f"{policy} cannot be made there ({type(error).__name__}: {error})", ""
    machine = actual["machine"]
    # The kind of the machine is the first part of its description.
    actual = {**actual, "machine": machine.partition(",")[0]}
    changed_keys = [key for key in needed if key != "code" and actual.get(key) != needed[key]]
    reasons = [f"{key} is {actual.get(key)} there and {needed[key]} here" for key in changed_keys]
    if code:
        reasons.insert(0, f"{code} is another one")
    return ", ".join(reasons), machine
