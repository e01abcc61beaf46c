"""What the doctor says of a running Ray cluster, of addresses without one, and of nodes with other
code.
"""

import os
import socket
import sys
from collections.abc import Callable
from typing import Any

import pytest

import ata_gym
from ata_gym.bench.store.provenance import provenance
from ata_gym.cluster.doctor import Finding
from ata_gym.cluster.on_ray import examination
from ata_gym.cluster.on_ray.examination import cluster_findings

ray = pytest.importorskip("ray", reason="the extra cluster")


def by_subject(address: str) -> dict[str, Finding]:
    findings = list(cluster_findings(address))
    assert len({finding.subject for finding in findings}) == len(findings)
    return {finding.subject: finding for finding in findings}


@pytest.mark.usefixtures("cluster")
@pytest.mark.skipif(os.name == "nt", reason="the variable below keeps Ray on loopback elsewhere")
def test_a_running_cluster_is_joined_and_left_as_it_was(monkeypatch):
    # the cluster of the tests listens on loopback only, and so must who joins it
    monkeypatch.setenv("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    free = ray.available_resources().get("CPU")
    address = ray.get_runtime_context().gcs_address
    findings = by_subject(address)
    assert {finding.state for finding in findings.values()} == {"ok"}
    assert f"Ray {ray.__version__}" in findings["this machine"].detail
    assert findings["cluster"].detail.startswith(f"joined at {address} in ")
    (node,) = ray.nodes()
    assert findings["nodes"].detail == "1, with 2 CPUs and 0 GPUs"
    told = findings[f"node {node['NodeManagerAddress']} ({node['NodeID'][:8]})"].detail
    assert f"ata-gym {ata_gym.__version__}, the same code; a task takes " in told
    assert ray.available_resources().get("CPU") == free


def test_an_address_at_which_nothing_listens_is_told_with_its_cure():
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        findings = by_subject(f"127.0.0.1:{port}")
    assert findings["cluster"].state == "broken"
    assert f"not joined at 127.0.0.1:{port}: " in findings["cluster"].detail
    assert "Connection refused" in findings["cluster"].detail
    assert "`ray start --head`" in findings["cluster"].cure


def test_a_server_that_is_no_ray_does_not_hang_the_doctor(monkeypatch):
    monkeypatch.setattr(examination, "_LONGEST_EXAMINATION", 2.0)
    monkeypatch.setattr(examination, "_LEAVES_WITHIN", 0.5)
    with socket.create_server(("127.0.0.1", 0)) as server:
        findings = by_subject(f"127.0.0.1:{server.getsockname()[1]}")
    assert findings["cluster"].state == "broken"
    assert "no answer of a Ray cluster within 2 s" in findings["cluster"].detail
    assert "HOST:6379" in findings["cluster"].cure


@pytest.mark.parametrize(
    ("address", "facts", "reason", "cure"),
    [
        (
            "10.0.0.1:6379",
            {"listens": True, "error": "Version mismatch: The cluster was started with: Ray: 1"},
            "The cluster was started with: Ray: 1",
            "install the cluster's versions",
        ),
        ("ray://10.0.0.1:6379", {"listens": True, "error": "timeout"}, "timeout", "10001"),
        ("10.0.0.1:6379", {"listens": True, "error": "no"}, "no", "RAY_AUTH_TOKEN"),
        ("auto", {"listens": False, "error": "none"}, "at auto: none", "start one with"),
        ("auto", {"fault": "exit code 3"}, "exit code 3", "HOST:6379"),
    ],
)
def test_a_cluster_that_cannot_be_joined_is_told_with_its_cure(
    address, facts, reason, cure, monkeypatch
):
    monkeypatch.setattr(examination, "outcomes", lambda *_: [facts])
    finding = by_subject(address)["cluster"]
    assert finding.state == "broken"
    assert reason in finding.detail
    assert cure in finding.cure


NODES = [
    {"id": "abcdefgh01", "host": "one", "address": "10.0.0.1", "resources": {"CPU": 4.0, "x": 9.0}},
    {"id": "bcdefghi02", "host": "two", "address": "10.0.0.2", "resources": {"CPU": 8, "GPU": 2.0}},
]


def answers(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """What an examination reports where a change was made to the code of the second node."""
    codes = [provenance("distribution-learner") for _ in NODES]
    codes[1] = {**codes[1], "code": dict(codes[1]["code"])}
    change(codes[1])
    return {
        "seconds": 1.0,
        "nodes": NODES,
        **{
            node["id"]: {"ray": "2.1", "code": code, "milliseconds": 1.25}
            for node, code in zip(NODES, codes, strict=True)
        },
    }


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda node: node.update(commit="another", machine="another"), ""),
        (lambda node: node.update({"numpy": "1.0"}), "numpy is 1.0 there and "),
        (lambda node: node.update({"ata-gym": "9.9"}), "ata-gym is 9.9 there and "),
        (lambda node: node.update(python="3.9.1"), "python is 3.9.1 there and "),
        (
            lambda node: node["code"].update({"ata_policies.policy": "another"}),
            "policy) is another one",
        ),
    ],
)
def test_a_node_with_other_code_is_named_with_what_differs(change, reason, monkeypatch):
    monkeypatch.setattr(examination, "outcomes", lambda *_: [answers(change)])
    findings = by_subject("10.0.0.1:6379")
    assert findings["nodes"].detail == "2, with 12 CPUs and 2 GPUs"
    first, second = (findings[f"node {node['address']} ({node['id'][:8]})"] for node in NODES)
    assert first.state == "ok"
    assert first.detail.startswith("one, 4 CPUs and 0 GPUs; Ray 2.1, Python ")
    assert first.detail.endswith("the same code; a task takes 1.2 ms")
    assert second.state == ("broken" if reason else "ok")
    assert reason in second.detail
    assert bool(second.cure) == bool(reason)


def test_a_node_that_does_not_answer_or_lacks_ata_gym_is_broken(monkeypatch):
    fault = {"fault": "ata_gym and ata_policies do not work there: ModuleNotFoundError: x"}
    facts = {"seconds": 1.0, "nodes": NODES, NODES[0]["id"]: fault}
    monkeypatch.setattr(examination, "outcomes", lambda *_: [facts])
    *_, first, second = by_subject("ray://10.0.0.1:10001").values()
    assert first.state == second.state == "broken"
    assert fault["fault"] in first.detail
    assert "pip" in first.cure or "install" in first.cure
    assert "it ran no task within " in second.detail


def test_who_cannot_describe_a_node_says_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "ata_gym.bench.store.provenance", None)
    assert "do not work there: ModuleNotFoundError: " in examination._describe_node()["fault"]


@pytest.mark.parametrize("address", ["here", "10.0.0.1:0", "ray://auto", "ray://10.0.0.1"])
def test_an_address_that_cannot_be_is_refused(address):
    with pytest.raises(ValueError, match=r"^--address .*must be auto, or host:port"):
        list(cluster_findings(address))
