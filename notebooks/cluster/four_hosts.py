"""Four hosts on this machine train a network, and what-if forecasts how long their steps take.

    sudo python four_hosts.py --problem-data cifar100.npz --out results/four-hosts

Each host has an address and a link of its own, and a part of a processor. Half way one host gets
less processor time and one link turns slow. torchrun trains by even shares, by LB-BSP and by the
default, and Ray as a race; from the times of the even run ``what-if`` forecasts the others. A table
says how well, and --out gets a picture, the times of each even run (``even-0.csv``, which
``ata-gym what-if --tasks 4`` reads, too) and the page of what-if for the first one.

It needs Linux and root, and takes down all that it set up.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import t as student

from ata_gym import bench
from ata_gym.bench.logs import Log
from ata_gym.bench.report import style
from ata_policies.registry import full_name

sys.path.insert(0, str(Path(__file__).parent))
import hosts
from on_hosts import EVEN, PLAN, POLICIES, RACE, RAY_PORT, WARM_UP, Changes, Run, resource

Floats = NDArray[np.float64]

PORT = 29500
"""The port of the first host at which the ranks meet; nobody else is in its network."""
STARTS_WITHIN = 90.0
"""Seconds in which a node of Ray must have joined."""

ON_HOSTS = str(Path(__file__).with_name("on_hosts.py"))


def forecasts(run: Run, names: Sequence[str], out: Path | None) -> dict[str, tuple[Floats, Floats]]:
    """Return what what-if forecasts from an even run: for each other policy the time of each step,
    and of the part of it that is computed.

    The rest of a step, such as the sum of the gradients, is that of the even run.
    """
    counted = slice(WARM_UP, None)
    rest = (run.seconds - run.longest)[counted]
    log = Log(
        f"even shares, seed {run.seed}",
        names,
        run.busy[counted],
        run.tasks[counted].astype(float),
        rest=rest,
        unit="s",
        latency=run.latency[counted],
    )
    results = bench.what_if(
        log,
        tasks=int(run.tasks[0].sum()) // len(names),
        policies=[policy for policy in POLICIES if policy != EVEN],
        without="dispatch",
        out=out,
    )
    times = {}
    for policy in (EVEN, *POLICIES[1:], RACE):
        name = "as it is" if policy == EVEN else _name_of(policy)
        runtime = results.records.filter(policy=name).sort("round")["runtime"].to_numpy()
        steps = np.diff(runtime, prepend=0.0)
        times[policy] = (steps, steps - rest)
    return times


def _name_of(policy: str) -> str:
    """The name of a policy in the table of what-if."""
    return policy if policy == RACE else full_name(policy)


def write_times(run: Run, names: Sequence[str], path: Path) -> None:
    """Write the times of a run as the table that ``ata-gym what-if`` reads."""
    rows = ["worker,round,duration"]
    for step, times in enumerate(run.busy, 1):
        if step > WARM_UP:
            rows += [f"{name},{step},{time:.6f}" for name, time in zip(names, times, strict=True)]
    path.write_text("\n".join(rows) + "\n", encoding="utf-8")


def error_of(forecast: Floats, truth: Floats) -> float:
    """Return by how many percent a forecast of all steps together is above the truth.

    Example:
        >>> error_of(np.array([1.0, 2.0]), np.array([1.0, 1.5]))
        20.0
    """
    return float(100.0 * (forecast.sum() / truth.sum() - 1.0))


def interval(values: Sequence[float], digits: int = 1) -> str:
    """Return a mean, with half of its 95 % interval where there are several values.

    Example:
        >>> interval([1.0, 2.0, 3.0])
        '2.0 ± 2.5'
    """
    mean = f"{np.mean(values):.{digits}f}"
    if len(values) < 2:
        return mean
    half = student.ppf(0.975, len(values) - 1) * np.std(values, ddof=1) / np.sqrt(len(values))
    return f"{mean} ± {half:.{digits}f}"


def table(
    runs: Mapping[str, Sequence[Run]],
    expected: Mapping[str, Sequence[tuple[Floats, Floats]]],
    changed_at: int,
) -> str:
    """Return the table of what was forecast and what happened, a row for each policy."""
    rows = [
        "| policy | ms a step before | after | over all | forecast | error, % | worst seed, %"
        " | error of the computed part, % |",
        "|---|---|---|---|---|---|---|---|",
    ]
    # the steps that count begin after the warm-up
    middle = changed_at - 1 - WARM_UP
    for policy, of_policy in runs.items():
        truths = [run.seconds[WARM_UP:] for run in of_policy]
        pairs = list(zip(expected[policy], of_policy, strict=True))
        errors = [
            error_of(steps, truth)
            for (steps, _), truth in zip(expected[policy], truths, strict=True)
        ]
        computed = [error_of(part, run.longest[WARM_UP:]) for (_, part), run in pairs]
        cells = [
            policy,
            interval([1000 * truth[:middle].mean() for truth in truths], 0),
            interval([1000 * truth[middle:].mean() for truth in truths], 0),
            interval([1000 * truth.mean() for truth in truths], 0),
            interval([1000 * steps.mean() for steps, _ in expected[policy]], 0),
        ]
        if policy == EVEN:
            # it is what the forecasts are made of
            cells += ["-", "-", "-"]
        else:
            worst = max(errors, key=abs)
            # a race ends with its last needed result, whoever is still computing
            of_computed = "-" if policy == RACE else interval(computed)
            cells += [interval(errors), f"{worst:.1f}", of_computed]
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows)


def draw(
    runs: Mapping[str, Sequence[Run]],
    expected: Mapping[str, Sequence[tuple[Floats, Floats]]],
    changes: Changes,
    path: Path,
) -> None:
    """Draw the mean time of each step over the seeds, as it was and as it was forecast."""
    with style.figure(1.0 + 2.6 * len(runs), 3.4) as picture:
        row = picture.subplots(1, len(runs), sharey=True, squeeze=False)[0]
        for axes, (policy, of_policy) in zip(row, runs.items(), strict=True):
            truth = np.mean([run.seconds[WARM_UP:] for run in of_policy], axis=0)
            steps = np.arange(1 + WARM_UP, len(truth) + 1 + WARM_UP)
            axes.plot(steps, 1000 * truth, color="#0072B2", linewidth=1.2, label="as it was")
            if policy != EVEN:
                forecast = np.mean([each for each, _ in expected[policy]], axis=0)
                look = {"color": "#D55E00", "linewidth": 1.2, "linestyle": (0, (4, 2))}
                axes.plot(steps, 1000 * forecast, label="forecast", **look)
            axes.axvline(changes.step - 0.5, color="#999999", linewidth=0.8)
            axes.set(title=policy, xlabel="step")
        row[0].set_ylabel("ms a step")
        row[0].set_ylim(bottom=0)
        row[-1].legend(loc="best")
        style.save(
            picture,
            path,
            f"In step {changes.step} {changes.throttled} gets less processor time, and the link of"
            f" {changes.slowed} turns slow",
        )


def start(
    layout: hosts.Layout,
    host: hosts.Host | None,
    words: Sequence[str],
    log: Path | None = None,
    **variables: str,
) -> subprocess.Popen[bytes]:
    """Start a program on a host, or on the head, in a session of its own."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"} | variables
    command = layout.command(host, [sys.executable, *words])
    if log is None:
        return subprocess.Popen(command, env=environment, start_new_session=True)
    with log.open("wb") as file:
        return subprocess.Popen(
            command, env=environment, start_new_session=True, stdout=file, stderr=file
        )


def run_torchrun(layout: hosts.Layout, out: Path) -> None:
    """Run torchrun on all hosts until it ends; RuntimeError if it fails on one."""
    master = ["--master-addr", layout.hosts[0].address, "--master-port", str(PORT)]
    processes = []
    for rank, host in enumerate(layout.hosts):
        place = ["--nnodes", str(len(layout.hosts)), "--nproc-per-node", "1"]
        words = ["-m", "torch.distributed.run", *place, "--node-rank", str(rank), *master]
        script = [ON_HOSTS, "rank", str(out)]
        processes.append(
            start(
                layout,
                host,
                [*words, *script],
                None if rank == 0 else out / f"{resource(host.name)}.log",
                GLOO_SOCKET_IFNAME=hosts.INTERFACE,
                TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1",
            )
        )
    while any(process.poll() is None for process in processes):
        for process, host in zip(processes, layout.hosts, strict=True):
            if process.poll():
                raise RuntimeError(f"torchrun failed on {host.name}; {out} has the logs of others")
        time.sleep(0.2)
    if any(process.returncode for process in processes):
        raise RuntimeError(f"torchrun failed; {out} has the logs of hosts")


def run_ray(layout: hosts.Layout, out: Path) -> str:
    """Run the race on a Ray cluster whose nodes are the hosts; why it could not be, or nothing."""
    # Ray asks for a token: this one is of this cluster alone
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": secrets.token_hex(32)}
    quiet = {"RAY_USAGE_STATS_ENABLED": "0", **token}
    begin = ["-m", "ray.scripts.scripts", "start", "--block", "--object-store-memory", "200000000"]
    address = f"{hosts.HEAD_ADDRESS}:{RAY_PORT}"
    # a short path, since it holds sockets; nodes are stopped before it is removed
    folder = tempfile.mkdtemp(prefix="ray")
    nodes = []
    try:
        layout.processors({host.name: None for host in layout.hosts})
        head = ["--head", "--include-dashboard=false", "--temp-dir", folder]
        head += ["--node-ip-address", hosts.HEAD_ADDRESS, "--port", str(RAY_PORT)]
        words = [*begin, *head, "--num-cpus", "0"]
        nodes.append(start(layout, None, words, out / "ray-head.log", **quiet))
        if not _started(nodes[-1], out / "ray-head.log"):
            return "the head of Ray did not start (ray-head.log)"
        for host in layout.hosts:
            log = out / f"ray-{resource(host.name)}.log"
            own = ["--node-ip-address", host.address, "--num-cpus", "1"]
            own += ["--resources", json.dumps({resource(host.name): 1})]
            nodes.append(start(layout, host, [*begin, "--address", address, *own], log, **quiet))
            # one after the other, since they share a folder of sockets
            if not _started(nodes[-1], log):
                return f"the node of Ray on {host.name} did not start ({log.name})"
        driver = start(layout, None, [ON_HOSTS, "race", str(out)], **quiet)
        if driver.wait():
            return "the race on Ray failed"
        return ""
    finally:
        layout.end_processes()
        for node in nodes:
            node.wait()
        shutil.rmtree(folder, ignore_errors=True)


def _started(node: subprocess.Popen[bytes], log: Path) -> bool:
    """Whether a node of Ray says within some time that it has started."""
    until = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < until and node.poll() is None:
        if "Ray runtime started" in log.read_text(encoding="utf-8", errors="replace"):
            return True
        time.sleep(0.2)
    return False


def numbers(text: str) -> list[float]:
    """Return the numbers of an option, such as 0.6,0.4."""
    try:
        values = [float(each) for each in text.split(",")]
    except ValueError:
        values = []
    if not values or not np.isfinite(values).all():
        raise argparse.ArgumentTypeError(f"numbers with commas between, as 0.6,0.4, not {text!r}")
    return values


def change(text: str) -> tuple[int, float]:
    """Return the host and the number of an option, such as 0,0.2.

    Example:
        >>> change("0,0.2")
        (0, 0.2)
    """
    values = numbers(text)
    if len(values) != 2 or values[0] != int(values[0]):
        raise argparse.ArgumentTypeError(f"HOST,NUMBER, as 0,0.2, not {text!r}")
    return int(values[0]), values[1]


def make_parser() -> argparse.ArgumentParser:
    """Return what reads the options."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--processors", type=numbers, default=[0.6, 0.4, 0.3, 0.15], help="of each host")
    add("--links", type=numbers, default=[1000, 200, 100, 50], help="Mbit/s of each host")
    add("--delays", type=numbers, default=[0, 0.5, 1, 5], help="ms of each host, by netem")
    add("--throttle", type=change, default=(0, 0.2), help="HOST,PROCESSORS from half way on")
    add("--slow-link", type=change, default=(1, 30.0), help="HOST,MBIT/S from half way on")
    add("--problem-data", type=Path, help="the images of CIFAR-100; digits without it")
    add("--budget", type=int, default=16, help="tasks of a step")
    add("--samples", type=int, default=32, help="samples of a task")
    add("--steps", type=int, default=40)
    add("--seeds", type=int, default=5)
    add("--no-race", action="store_true", help="without Ray")
    add("--out", type=Path, default=Path("four-hosts"))
    return parser


def prepared(
    parser: argparse.ArgumentParser, given: argparse.Namespace
) -> tuple[hosts.Layout, Changes]:
    """Return the layout and the changes that the options say; nothing is set up."""
    cgroups = hosts.cgroups_in(Path("/proc/mounts").read_text(encoding="utf-8"))
    count = len(given.processors)
    try:
        layout = hosts.plan(
            given.processors,
            given.links,
            given.delays,
            cgroups,
            number=os.getpid(),
            available=os.cpu_count() or 1,
        )
        hosts.quota(given.throttle[1])
    except ValueError as error:
        parser.error(str(error))
    for option, (host, value) in (("throttle", given.throttle), ("slow-link", given.slow_link)):
        if not 0 <= host < count or not value > 0:
            parser.error(f"--{option} needs a host from 0 to {count - 1}, and a number above 0")
    # what-if cuts the share of each host into the same number of tasks
    if given.budget < 2 * count or given.budget % count:
        parser.error(f"--budget must be a multiple of {count}, and at least {2 * count}")
    if given.steps < 20 or given.seeds < 1 or given.samples < 1:
        parser.error("--steps must be at least 20, --seeds and --samples at least 1")
    names = [host.name for host in layout.hosts]
    changes = Changes(
        throttled=names[given.throttle[0]],
        processors=given.throttle[1],
        slowed=names[given.slow_link[0]],
        link=given.slow_link[1],
        step=given.steps // 2 + 1,
    )
    return layout, changes


def main() -> None:
    """Set the hosts up, train, take them down, and compare."""
    parser = make_parser()
    given = parser.parse_args()
    if lacking := hosts.missing_rights():
        sys.exit(lacking)
    layout, changes = prepared(parser, given)
    out = given.out.resolve()
    out.mkdir(parents=True, exist_ok=True)
    settings = {
        "problem": "cifar100" if given.problem_data else "digits",
        "problem_data": str(given.problem_data.resolve()) if given.problem_data else None,
        **{name: getattr(given, name) for name in ("budget", "samples", "steps", "seeds")},
    }
    plan = {"layout": hosts.plain(layout), "changes": vars(changes), "settings": settings}
    (out / PLAN).write_text(json.dumps(plan, indent=2), encoding="utf-8")
    try:
        with hosts.laid_out(layout):
            run_torchrun(layout, out)
            why = "as --no-race says" if given.no_race else run_ray(layout, out)
    except RuntimeError as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)
    names = [host.name for host in layout.hosts]
    policies = [*POLICIES, *([] if why else [RACE])]
    seeds = range(given.seeds)
    runs = {name: [Run.read(out / f"{name}-{seed}.json") for seed in seeds] for name in policies}
    predictions = []
    for run in runs[EVEN]:
        write_times(run, names, out / f"even-{run.seed}.csv")
        predictions.append(forecasts(run, names, out / "what-if" if run.seed == 0 else None))
    expected = {name: [each[name] for each in predictions] for name in policies}
    if why:
        print(f"There is no race, {why}.")
    text = table(runs, expected, changes.step)
    (out / "table.md").write_text(text + "\n", encoding="utf-8")
    print(text)
    draw(runs, expected, changes, out / "four-hosts")


if __name__ == "__main__":
    main()
