#!/usr/bin/env bash
# torch 2.13.0 on a CPU
#
# gloo tells the Flight Recorder no moment at which a collective starts or ends. So a collective that ended long ago keeps the
# state "scheduled", has no time of its end, and is dumped with onlyActive=True, beside the one that a rank waits for; retired
# alone tells them apart. The group is recorded before it has a name: entries say "0", the list of groups says "", each new
# group takes the place of the one before, with no ranks. So torchfrtrace, torch's own reader, ends in KeyError.
# It concerns who looks for the collective that hangs on CPUs: read retired, in place of state, times and onlyActive; and before
# torchfrtrace, write the ranks of each group into pg_config under the name that entries have, as for the last line.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6

expect "three ended, the fourth waits: scheduled retired, scheduled retired, scheduled retired, scheduled
of which onlyActive=True gives: 4
times of the end: None None None None
group of each entry: 0; groups: '' with ranks [0, 1]
after new_group, groups: '' with ranks []
torchfrtrace: exit code 1, KeyError: ('0', 0)
torchfrtrace, with the group named: exit code 0" <<'PY'
import pickle
import subprocess
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _dump_fr_trace

BOUND = timedelta(seconds=60)


def dump(**options):
    return pickle.loads(_dump_fr_trace(includeStackTraces=False, **options))


def wait_until_retired(count):
    for _ in range(600):
        if sum(entry["retired"] for entry in dump()["entries"]) == count:
            return
        time.sleep(0.1)
    raise TimeoutError(f"not retired: {dump()}")


def groups():
    return ", ".join(
        f"{name!r} with ranks {group['ranks']}" for name, group in dump()["pg_config"].items()
    )


def work(rank):
    store = dist.FileStore("store", 2)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=BOUND)
    for _ in range(3):
        dist.all_reduce(torch.ones(4))
    wait_until_retired(3)
    if rank == 0:
        waiting = dist.all_reduce(torch.ones(4), async_op=True)
        entries = dump()["entries"]
        described = (entry["state"] + " retired" * entry["retired"] for entry in entries)
        print("three ended, the fourth waits:", ", ".join(described))
        print("of which onlyActive=True gives:", len(dump(onlyActive=True)["entries"]))
        print("times of the end:", *(entry["time_discovered_completed_ns"] for entry in entries))
        names = {entry["process_group"][0] for entry in entries}
        print("group of each entry:", *names, end=f"; groups: {groups()}\n")
        store.set("looked", "")
        waiting.wait()
    else:
        store.wait(["looked"], BOUND)
        dist.all_reduce(torch.ones(4))
    wait_until_retired(4)
    write(dump(), "dumped", rank)
    named = {"0": {"name": "0", "desc": "default_pg", "ranks": "[0, 1]"}}
    write(dump() | {"pg_config": named}, "mended", rank)
    dist.new_group([0, 1], timeout=BOUND)
    if rank == 0:
        print("after new_group, groups:", groups())
    dist.barrier()
    dist.destroy_process_group()


def write(content, folder, rank):
    Path(folder).mkdir(exist_ok=True)
    Path(folder, f"rank_{rank}").write_bytes(pickle.dumps(content))


def read(title, folder):
    command = ["venv/bin/torchfrtrace", folder, "-p", "rank_"]
    reader = subprocess.run(command, capture_output=True, text=True, timeout=60)
    error = f", {reader.stderr.splitlines()[-1]}" if reader.returncode else ""
    print(f"{title}: exit code {reader.returncode}{error}")


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
    read("torchfrtrace", "dumped")
    read("torchfrtrace, with the group named", "mended")
PY
