#!/usr/bin/env bash
# distributed 2026.8.0, dask 2026.8.0, pandas 3.1.1, pyarrow 26.0.1
#
# Client.get_task_stream() has an entry for a task that came to its last result or error, and for nothing else that a worker
# did: an attempt that failed and was retried, and a task whose future was dropped or cancelled while it ran, have none, though
# the worker ran them to their end. So a worker looks idle that was busy. And the entries, a list of dicts by the documentation,
# are kept by none of the customary ways: "type" is a pickle as bytes, "metadata" an empty dict.
# It concerns who takes busy time, rates or failures of workers from it: count retries and drops as unknown, or write times from
# within the task. To keep it, take key, worker, thread, status, typename and startstops of each entry.
. "$(dirname "$0")/fresh.bash"
install distributed==2026.8.0 dask==2026.8.0 pandas==3.1.1 pyarrow==26.0.1 numpy==2.4.6

expect "task: run by workers, in the task stream
plain: 1, 1
fails: 1, 1
retried twice: 3, 1
cancelled: 1, 0
dropped: 1, 0
json.dumps: TypeError: Object of type bytes is not JSON serializable
DataFrame.to_json: UnicodeDecodeError: 'utf-8' codec can't decode byte 0x80
DataFrame.to_parquet: ArrowNotImplementedError: Cannot write struct type 'metadata' with no child field to Parquet
chosen columns: json.dumps kept, DataFrame.to_json kept, DataFrame.to_parquet kept" <<'PY'
import json
import logging
import time
from pathlib import Path

import pandas as pd
from distributed import Client, LocalCluster, wait

WAYS = {
    "json.dumps": json.dumps,
    "DataFrame.to_json": lambda entries: pd.DataFrame(entries).to_json(),
    "DataFrame.to_parquet": lambda entries: pd.DataFrame(entries).to_parquet("stream.parquet"),
}
CHOSEN = ("key", "worker", "thread", "status", "typename", "startstops")


def run(name, duration=0.0, failures=0):
    """Each run of the task writes a line when it begins and when it ends."""
    with open(f"{name}.begun", "a") as file:
        print(file=file)
    time.sleep(duration)
    with open(f"{name}.ended", "a") as file:
        print(file=file)
    if lines(f"{name}.ended") <= failures:
        raise ValueError(name)


def lines(path):
    return len(Path(path).read_text().splitlines()) if Path(path).exists() else 0


def wait_for(path):
    for _ in range(600):
        if lines(path):
            return
        time.sleep(0.1)
    raise TimeoutError(path)


def keep(way, entries):
    try:
        WAYS[way](entries)
    except Exception as error:
        text = str(error).partition(" in position")[0].partition(". ")[0]
        return f"{type(error).__name__}: {text}"
    return "kept"


if __name__ == "__main__":
    silent = {"silence_logs": logging.CRITICAL, "dashboard_address": None}
    with (
        LocalCluster(n_workers=1, threads_per_worker=1, processes=False, **silent) as cluster,
        Client(cluster) as client,
    ):
        client.get_task_stream()  # from here on it is recorded, as documented
        wait(client.submit(run, "plain", key="plain"))
        stream = client.get_task_stream()
        wait(client.submit(run, "fails", failures=1, key="fails"))
        wait(client.submit(run, "retried twice", failures=2, retries=2, key="retried twice"))
        future = client.submit(run, "cancelled", 1.0, key="cancelled")
        wait_for("cancelled.begun")
        future.cancel()
        wait_for("cancelled.ended")
        future = client.submit(run, "dropped", 1.0, key="dropped")
        wait_for("dropped.begun")
        del future
        wait_for("dropped.ended")
        wait(client.submit(run, "last", key="last"))
        recorded = [entry["key"] for entry in client.get_task_stream()]
    print("task: run by workers, in the task stream")
    for name in ("plain", "fails", "retried twice", "cancelled", "dropped"):
        print(f"{name}: {lines(f'{name}.ended')}, {recorded.count(name)}")
    for way in WAYS:
        print(f"{way}: {keep(way, stream)}")
    chosen = [{name: entry[name] for name in CHOSEN} for entry in stream]
    print("chosen columns:", ", ".join(f"{way} {keep(way, chosen)}" for way in WAYS))
PY
