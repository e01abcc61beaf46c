"""The examination of a running Ray cluster: whether it can be joined, and what its nodes have.

``cluster_findings`` runs in the process of the doctor, ``examine_nodes`` in a process of its own,
since Ray may hang, and ``_describe_node`` on each node.
"""

import logging
import platform
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import metadata
from statistics import median
from time import perf_counter
from typing import Any

import ata_gym
from ata_gym.bench.store.provenance import changed, provenance
from ata_gym.cluster.doctor import Finding
from ata_gym.cluster.on_ray.connection import CLIENT, check_address, join_ray
from ata_gym.cluster.trials import Report, outcomes

_LONGEST_EXAMINATION = 40.0
"""The seconds in which the cluster may be joined, and its nodes may answer."""

_LEAVES_WITHIN = 8.0
"""The seconds in which the process that examines a cluster leaves it; later it is killed."""

_LONGEST_REASON = 400
"""The characters of an error of Ray that are shown."""

_TIMED_TASKS = 5
"""The trivial tasks that are timed on each node; the median is shown."""

_POLICY = "distribution-learner"
"""The policy whose code is compared: the default of TaskAllocation."""

_START = "start one with `ray start --head`, and give the address that it prints, HOST:6379"
_JOIN_FROM_A_NODE = (
    "give the address that `ray start --head` printed, HOST:6379, on a node of the cluster; with a"
    " token, set RAY_AUTH_TOKEN as there"
)
_JOIN_BY_CLIENT = (
    "give the port of Ray Client on the head node, by default 10001; it is open where ray[client]"
    " was installed; with a token, set RAY_AUTH_TOKEN as there"
)
_SAME_VERSIONS = "install the cluster's versions of Ray and Python here"
_INSTALL_THERE = (
    "install the same versions there, or submit commands with the code: ray job submit"
    " --working-dir . -- ata-gym ..."
)
_SUBMIT = "submit commands, which then run on a node: ray job submit --working-dir . -- ata-gym ..."


def cluster_findings(address: str) -> Iterator[Finding]:
    """Look at a running Ray cluster, in a minute at most; nothing is changed or left running.

    Args:
        address: ``auto``, host:port of the head node, or ``ray://`` and host:port of its server for
            Ray Client.

    Raises:
        ValueError: If no cluster can have this address.
    """
    if address.startswith(CLIENT) and address != f"{CLIENT}auto":
        check_address(address.removeprefix(CLIENT), f"--address after {CLIENT}")
    else:
        check_address(address, "--address")
    try:
        ray_version = metadata.version("ray")
    except metadata.PackageNotFoundError:
        yield Finding("ray", "broken", "not installed here", 'pip install "ata-gym[cluster]"')
        return
    versions = _versions(ray_version, platform.python_version(), ata_gym.__version__)
    yield Finding("this machine", "ok", versions)
    trial = [f"{__name__}:{examine_nodes.__name__}", address, str(_LONGEST_EXAMINATION)]
    (facts,) = outcomes([trial], _LONGEST_EXAMINATION + _LEAVES_WITHIN)
    if "nodes" not in facts:
        yield _not_joined(address, facts)
        return
    yield Finding("cluster", "ok", f"joined at {address} in {facts['seconds']:.1f} s")
    if address.startswith(CLIENT):
        yield Finding(
            "ray client",
            "missing",
            "ata-gym joins a cluster from a node, and not through Ray Client",
            _SUBMIT,
        )
    nodes = facts["nodes"]
    yield Finding("nodes", "ok", f"{len(nodes)}, with {_resources(nodes)}")
    for node in nodes:
        yield _node_finding(node, facts.get(node["id"]))


def _versions(ray: str, python: str, own: str) -> str:
    return f"Ray {ray}, Python {python}, ata-gym {own}"


def _resources(nodes: Iterable[Mapping[str, Any]]) -> str:
    """The CPUs and GPUs of some nodes, in words."""
    totals = dict.fromkeys(("CPU", "GPU"), 0.0)
    for node in nodes:
        for name in totals:
            totals[name] += node["resources"].get(name, 0.0)
    return f"{totals['CPU']:g} CPUs and {totals['GPU']:g} GPUs"


def _node_finding(node: Mapping[str, Any], answer: Mapping[str, Any] | None) -> Finding:
    """Whether a node can run what this machine sends to it."""
    subject = f"node {node['address']} ({node['id'][:8]})"
    name = f"{node['host']}, {_resources([node])}"
    if answer is None:
        return Finding(
            subject,
            "broken",
            f"{name}; it ran no task within {_LONGEST_EXAMINATION:g} s",
            "look at `ray status`, and at the log files of Ray on that node",
        )
    if "fault" in answer:
        return Finding(subject, "broken", f"{name}; {answer['fault']}", _INSTALL_THERE)
    code_here = provenance(_POLICY)
    code_there = answer["code"]
    difference = changed(code_there, code_here, _POLICY)
    versions = _versions(answer["ray"], code_there["python"], code_there["ata-gym"])
    detail = f"{name}; {versions}"
    # The same code may have no commit on a node, and nodes may be machines of other kinds.
    others = [
        f"{package} is {code_there[package]} there and {version} here"
        for package, version in code_here.items()
        if package not in {"code", "commit", "machine"} and code_there[package] != version
    ]
    if difference:
        others.insert(0, f"{difference} is another one")
    if others:
        return Finding(subject, "broken", f"{detail}; {', '.join(others)}", _INSTALL_THERE)
    return Finding(
        subject, "ok", f"{detail}, the same code; a task takes {answer['milliseconds']:.1f} ms"
    )


def _not_joined(address: str, facts: Mapping[str, Any]) -> Finding:
    """Why a cluster was not joined, and what to do."""
    if "error" in facts:
        reason = facts["error"]
    elif facts.get("fault") == "it took too long":
        reason = f"no answer of a Ray cluster within {_LONGEST_EXAMINATION:g} s"
    else:
        reason = facts.get("fault", "its process ended")
    if "Version mismatch" in reason:
        cure = _SAME_VERSIONS
    elif address.startswith(CLIENT):
        cure = _JOIN_BY_CLIENT
    elif facts.get("listens", True):
        cure = _JOIN_FROM_A_NODE
    else:
        cure = _START
    return Finding("cluster", "broken", f"not joined at {address}: {reason}", cure)


def examine_nodes(report: Report, address: str, seconds: str) -> None:
    """Join a cluster, run tasks on each node, and leave it.

    Args:
        report: It gets the facts ``"listens"`` and ``"error"``, or ``"seconds"`` and ``"nodes"``,
            and an answer by the id of each node that answered.
        address: The address of the cluster.
        seconds: How long it may take from now.
    """
    start = perf_counter()
    end = start + float(seconds)
    try:
        ray = join_ray(address, logging_level=logging.ERROR, log_to_driver=False)
    except Exception as error:
        text = " ".join(str(error).split()) or type(error).__name__
        # Ray raises a plain ConnectionError where a server refused it, and where auto found none.
        ray_refused = address != "auto" and type(error) is ConnectionError
        report("listens", ray_refused or not isinstance(error, OSError))
        report("error", text[:_LONGEST_REASON])
        return
    report("seconds", perf_counter() - start)
    nodes = [
        {
            "id": node["NodeID"],
            "host": node["NodeManagerHostname"],
            "address": node["NodeManagerAddress"],
            "resources": node["Resources"],
        }
        for node in ray.nodes()
        if node["Alive"]
    ]
    report("nodes", nodes)
    # The nodes get this file itself, since they may have another ata-gym, or none.
    ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
    running = {_on_node(ray, _describe_node, node["id"]).remote(): node["id"] for node in nodes}
    while running and (remaining := end - perf_counter()) > 0:
        ended, _ = ray.wait(list(running), timeout=remaining)
        for task in ended:
            node_id = running.pop(task)
            try:
                answer = ray.get(task)
                answer["milliseconds"] = _task_milliseconds(ray, node_id, remaining)
            except ray.exceptions.RayError as error:
                answer = {"fault": " ".join(str(error).split())[:_LONGEST_REASON]}
            report(node_id, answer)
    for task in running:
        ray.cancel(task, force=True)
    ray.shutdown()


def _on_node(ray: Any, function: Callable[[], Any], node_id: str) -> Any:
    """A task on a node, which takes no CPU from others and is tried once."""
    strategy = ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(node_id, soft=False)
    return ray.remote(function).options(
        num_cpus=0,
        max_retries=0,
        scheduling_strategy=strategy,
    )


def _task_milliseconds(ray: Any, node_id: str, seconds: float) -> float:
    """How long a trivial task takes on a node whose process has started, there and back."""
    task = _on_node(ray, _answer, node_id)
    times = []
    # The first task takes the function there.
    for _ in range(1 + _TIMED_TASKS):
        start = perf_counter()
        ray.get(task.remote(), timeout=seconds)
        times.append(1000 * (perf_counter() - start))
    return median(times[1:])


def _answer() -> None:
    """A trivial task."""


def _describe_node() -> dict[str, Any]:
    """The versions and the code of the node on which this runs, or why ata-gym does not work."""
    import ray  # noqa: PLC0415

    try:
        # A node may have another ata-gym, in which anything may be missing.
        from ata_gym.bench.store.provenance import provenance as code_of  # noqa: PLC0415

        return {"ray": ray.__version__, "code": code_of(_POLICY)}
    except Exception as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        reason = ": ".join([type(error).__name__, *lines[:1]])
        return {"fault": f"ata_gym and ata_policies do not work there: {reason}"}
