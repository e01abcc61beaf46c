#!/usr/bin/env bash
# torch 2.13.0 on a CPU
#
# torch.profiler records a collective of gloo in a thread of gloo's, and marks it as asynchronous, whose own time counts as 0.
# The thread that trains has no event while it waits. So of a step of DDP in which this rank waits 2 s for another, the table
# has less than half a second in all, and gloo:all_reduce is there with Self CPU 0. And gloo:all_reduce lasts until the slowest
# rank has come, whether this rank computes meanwhile or waits; of several at once, the sum is more than the time that passed.
# It concerns who looks for the wait for slow ranks on CPUs. In DDP it is the gap between the events of the thread that trains,
# after the last AccumulateGrad of a step; where you call work.wait() yourself, put record_function around it.
. "$(dirname "$0")/fresh.bash"
install torch==2.13.0 numpy==2.4.6

expect "a step of DDP, the other rank 2 s late: at least 1 s True, Self CPU time total below half a second True
gloo:all_reduce: at least 1 s True, Self CPU 0, in the thread that trains False
thread that trains: longest event below half a second True; a gap of at least 1 s True, from AccumulateGrad to as_strided
while this rank computes: gloo:all_reduce at least 1 s True, wait() below half a second True
two at once: the sum of gloo:all_reduce is 2 times the wait" <<'PY'
import json
import time
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile, record_function


@contextmanager
def profiled(rank):
    """The other rank begins two seconds later."""
    dist.barrier()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        if rank == 1:
            time.sleep(2)
        yield profiler


def seconds(profiler, name):
    return [
        event.time_range.elapsed_us() / 1e6 for event in profiler.events() if event.name == name
    ]


def report_step(profiler, duration):
    table = profiler.key_averages()
    total = sum(row.self_cpu_time_total for row in table) / 1e6
    print(f"a step of DDP, the other rank 2 s late: at least 1 s {duration >= 1}", end=", ")
    print(f"Self CPU time total below half a second {total < 0.5}")
    (row,) = (row for row in table if row.key == "gloo:all_reduce")
    profiler.export_chrome_trace("trace.json")
    with open("trace.json") as file:
        events = [event for event in json.load(file)["traceEvents"] if event["ph"] == "X"]
    threads = {event["name"]: event["tid"] for event in events}
    own = threads["c10d::allreduce_"]
    print(f"gloo:all_reduce: at least 1 s {row.cpu_time_total >= 1e6}", end=", ")
    print(f"Self CPU {row.self_cpu_time_total:.0f}", end=", ")
    print(f"in the thread that trains {threads['gloo:all_reduce'] == own}")
    events = sorted(
        (event for event in events if event["tid"] == own), key=lambda event: event["ts"]
    )
    longest = max(event["dur"] for event in events)
    print(f"thread that trains: longest event below half a second {longest < 0.5e6}", end="; ")
    gap, before, after = longest_gap(events)
    print(f"a gap of at least 1 s {gap >= 1e6}", end=", ")
    print(f"from {before.rpartition(':')[2]} to {after.rpartition(':')[2]}")


def longest_gap(events):
    gaps, last = [], events[0]
    for event in events:
        gaps.append((event["ts"] - last["ts"] - last["dur"], last["name"], event["name"]))
        last = max(last, event, key=lambda one: one["ts"] + one["dur"])
    return max(gaps)


def work(rank):
    store = dist.FileStore("store", 2)
    bound = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=2, timeout=bound)
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    batch = torch.ones(4, 8)
    for _ in range(3):
        model(batch).sum().backward()

    with profiled(rank) as profiler:
        start = time.perf_counter()
        model(batch).sum().backward()
        duration = time.perf_counter() - start
    if rank == 0:
        report_step(profiler, duration)

    with profiled(rank) as profiler:
        handle = dist.all_reduce(torch.ones(4), async_op=True)
        time.sleep(2.5 if rank == 0 else 0)  # in place of computing
        with record_function("wait"):
            handle.wait()
    if rank == 0:
        (collective,) = seconds(profiler, "gloo:all_reduce")
        (waited,) = seconds(profiler, "wait")
        print(f"while this rank computes: gloo:all_reduce at least 1 s {collective >= 1}", end=", ")
        print(f"wait() below half a second {waited < 0.5}")

    with profiled(rank) as profiler:
        handles = [dist.all_reduce(torch.ones(4), async_op=True) for _ in range(2)]
        with record_function("wait"):
            for handle in handles:
                handle.wait()
    if rank == 0:
        (waited,) = seconds(profiler, "wait")
        times = sum(seconds(profiler, "gloo:all_reduce")) / waited
        print(f"two at once: the sum of gloo:all_reduce is {times:.0f} times the wait")
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(work, nprocs=2)
PY
