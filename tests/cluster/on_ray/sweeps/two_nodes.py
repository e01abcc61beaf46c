"""``leaderboard --quick`` on this machine, and on a Ray cluster that loses one of its two nodes: the same bytes?

    python -m tests.cluster.on_ray.sweeps.two_nodes --scenarios regret,sqrt --policies uta,ata

All arguments go to both commands. It takes as long as both; the folders are left for a look.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path


def main(arguments: list[str]) -> int:
    """Run both commands and compare their folders; exit code 1 if they differ."""
    os.environ["RAY_TMPDIR"] = short = tempfile.mkdtemp(prefix="r", dir="/tmp")  # sockets need short names
    from ray.cluster_utils import Cluster

    cluster = Cluster(True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    lost, _ = (cluster.add_node(num_cpus=1) for _ in range(2))
    local, on_ray = (Path(short, name) for name in ("here", "there"))
    command = [sys.executable, "-m", "ata_gym", "leaderboard", "--quick", "--save-every", "1", *arguments, "--out"]
    try:
        start = time.monotonic()
        subprocess.run([*command, str(local)], check=True, stdout=subprocess.DEVNULL)
        print(f"local: {time.monotonic() - start:.0f} s")
        start = time.monotonic()
        process = subprocess.Popen([*command, str(on_ray), "--workers", "ray", "--address", cluster.address])
        jobs = len(list(local.rglob("results/*.parquet")))
        while len(list(on_ray.rglob("results/*.parquet"))) < jobs / 3 and process.poll() is None:
            time.sleep(0.1)
        print(f"one node is killed after {len(list(on_ray.rglob('results/*.parquet')))} of {jobs} jobs", flush=True)
        cluster.remove_node(lost, allow_graceful=False)
        code = process.wait()
        print(f"on Ray: {time.monotonic() - start:.0f} s, exit code {code}")
    finally:
        cluster.shutdown()
    here, there = _contents(local), _contents(on_ray)
    differing = sorted(name for name in here | there if here.get(name) != there.get(name))
    print(f"{len(here)} files in {local}, {len(there)} in {on_ray}; these differ: {differing or 'none'}")
    return int(bool(differing) or code != 0)


def _contents(path: Path) -> dict[str, bytes]:
    """All files but those of wall-clock times."""
    files = {str(file.relative_to(path)): file for file in path.rglob("*") if file.is_file()}
    return {name: file.read_bytes() for name, file in files.items() if "timings" not in name}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
