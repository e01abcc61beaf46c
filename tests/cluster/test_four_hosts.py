"""The script that lays hosts out on one machine, as far as it can be tried without rights."""

import argparse
import importlib
import ipaddress
import json
import os
import runpy
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

for package in ("torch", "ray", "polars", "matplotlib"):
    pytest.importorskip(package)
FOLDER = Path(__file__).parents[2] / "notebooks" / "cluster"
sys.path.insert(0, str(FOLDER))
hosts, on_hosts, four_hosts = (
    importlib.import_module(name) for name in ("hosts", "on_hosts", "four_hosts")
)
sys.path.remove(str(FOLDER))

V1 = hosts.Cgroups("/sys/fs/cgroup/cpu", 1)
V2 = hosts.Cgroups("/sys/fs/cgroup", 2)
GIVEN = {"processors": [0.6, 0.4, 0.3, 0.15], "links": [1000, 200, 100, 50], "delays": [0, 0, 1, 5]}


def planned(number=7, available=2, cgroups=V1, **changes):
    return hosts.plan(**{**GIVEN, **changes}, cgroups=cgroups, number=number, available=available)


@pytest.mark.parametrize("processors", [0.05, 0.15, 0.3, 0.6, 1.0, 1.5])
def test_a_quota_is_the_part_of_its_period_in_both_versions_of_cgroups(processors):
    assert hosts.quota(processors) / hosts.PERIOD == pytest.approx(processors)
    assert V1.limit(processors) == ("cpu.cfs_quota_us", str(hosts.quota(processors)))
    file, text = V2.limit(processors)
    assert file == "cpu.max"
    assert [int(word) for word in text.split()] == [hosts.quota(processors), hosts.PERIOD]


def test_no_limit_is_minus_one_or_max():
    assert V1.limit(None) == ("cpu.cfs_quota_us", "-1")
    assert V2.limit(None) == ("cpu.max", f"max {hosts.PERIOD}")


@pytest.mark.parametrize("link", [0.1, 30.0, 50.0, 1000.0, 10_000.0])
def test_a_link_can_send_in_a_tick_what_its_rate_says(link):
    words = hosts.tbf(link)
    burst = int(words[words.index("burst") + 1])
    assert words[words.index("rate") + 1] == f"{round(1000 * link)}kbit"
    assert burst * hosts.TICKS * 8 >= link * 1e6 - 8 * hosts.TICKS
    assert burst >= hosts.LEAST_BURST


def test_a_plan_has_names_of_its_own_and_addresses_of_one_network():
    first, second = planned(7), planned(8)
    network = ipaddress.ip_network(f"{hosts.HEAD_ADDRESS}/24", strict=False)
    for layout in (first, second):
        addresses = [host.address for host in layout.hosts]
        assert len({*addresses, hosts.HEAD_ADDRESS}) == 5
        assert all(ipaddress.ip_address(each) in network for each in addresses)
        # names of interfaces are at most 15 characters long
        assert all(len(host.port) <= 15 for host in layout.hosts)
    names = [
        {layout.switch, *(host.namespace for host in layout.hosts)} for layout in (first, second)
    ]
    assert len(names[0]) == len(names[1]) == 5
    assert not names[0] & names[1]
    assert not set(first.cgroup_folders) & set(second.cgroup_folders)
    assert {path.parent for path in first.cgroup_folders} == {Path(V1.folder)}
    most = planned(processors=[0.05] * 200, links=[1] * 200, delays=[0] * 200, available=99)
    assert hosts.HEAD_ADDRESS not in {host.address for host in most.hosts}
    assert all(ipaddress.ip_address(host.address) in network for host in most.hosts)


def test_a_layout_is_the_same_after_a_file():
    layout = planned()
    assert hosts.Layout.of(json.loads(json.dumps(hosts.plain(layout)))) == layout


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"links": [1000, 200, 100]}, "4, 3 and 4"),
        ({"processors": [0.6], "links": [1], "delays": [0]}, "2 to 200"),
        ({"processors": [0.6, 0.4, 0.3, 0.01]}, "too small a quota: give at least 0.05"),
        ({"links": [1000, 200, 100, 0]}, "at least 0.1 Mbit/s"),
        ({"links": [1000, 200, 100, float("nan")]}, "at least 0.1 Mbit/s"),
        ({"delays": [0, 0, 0, -1]}, "at least 0 ms"),
        ({"processors": [0.6, 0.6, 0.6, 0.6]}, "need 2.4 processors"),
    ],
)
def test_what_cannot_be_laid_out_is_refused(changes, words):
    with pytest.raises(ValueError, match=words):
        planned(**changes)


@pytest.mark.parametrize(
    ("mounts", "cgroups"),
    [
        ("cgroup /a cgroup rw,cpuset 0 0\ncgroup /b cgroup rw,cpu,cpuacct 0 0", ("/b", 1)),
        ("cgroup2 /c cgroup2 rw 0 0\ncgroup /b cgroup rw,cpu 0 0", ("/b", 1)),
        ("proc /proc proc rw 0 0\ncgroup2 /c cgroup2 rw,nsdelegate 0 0", ("/c", 2)),
        ("cgroup /a cgroup rw,cpuset,cpuacct 0 0", None),
        ("", None),
    ],
)
def test_the_cgroups_that_limit_processors_are_found(mounts, cgroups):
    assert hosts.cgroups_in(mounts) == (cgroups and hosts.Cgroups(*cgroups))


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs /proc")
def test_without_rights_one_sentence_says_so_and_nothing_is_made(monkeypatch, tmp_path):
    out = tmp_path / "out"
    monkeypatch.setattr(sys, "argv", ["four_hosts.py", "--out", str(out)])
    monkeypatch.setattr(subprocess, "run", lambda *_, **__: pytest.fail("a command was run"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(SystemExit, match="need root, for namespaces, links and quotas"):
        four_hosts.main()
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(hosts.shutil, "which", lambda name: None if name == "tc" else name)
    with pytest.raises(SystemExit, match="need tc: install iproute2"):
        four_hosts.main()
    monkeypatch.setattr(hosts.shutil, "which", lambda name: name)
    monkeypatch.setattr(hosts, "_CAPABILITIES", {"CAP_THAT_NOBODY_HAS": 63})
    with pytest.raises(SystemExit, match="need CAP_THAT_NOBODY_HAS, which root lacks"):
        four_hosts.main()
    assert not out.exists()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--processors", "0.6,x"], "numbers with commas between"),
        (["--throttle", "0"], "HOST,NUMBER"),
        (["--throttle", "4,0.2"], "a host from 0 to 3"),
        (["--slow-link", "-1,30"], "expected one argument|a host from 0 to 3"),
        (["--slow-link", "1,0"], "a number above 0"),
        (["--budget", "18"], "a multiple of 4"),
        (["--steps", "19"], "at least 20"),
        (["--links", "1,1"], "4, 2 and 4"),
    ],
)
def test_bad_options_are_refused_before_anything_is_made(options, words, capsys, monkeypatch):
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    parser = four_hosts.make_parser()
    with pytest.raises(SystemExit):
        four_hosts.prepared(parser, parser.parse_args(options))
    assert any(word in capsys.readouterr().err for word in words.split("|"))


def test_numbers_of_options_are_read():
    assert four_hosts.numbers("1000,200,0.5") == [1000.0, 200.0, 0.5]
    assert four_hosts.change("1,30") == (1, 30.0)
    with pytest.raises(argparse.ArgumentTypeError):
        four_hosts.change("0.5,30")


def test_hosts_have_no_quotas_in_the_first_step_and_change_half_way():
    calls = []
    layout = SimpleNamespace(
        hosts=planned().hosts,
        processors=lambda values: calls.append(("processors", values)),
        links=lambda values: calls.append(("links", values)),
    )
    changes = on_hosts.Changes("host 0", 0.2, "host 1", 30.0, 11)
    names = [host.name for host in layout.hosts]
    for step in range(1, 21):
        calls.append(step)
        changes.before(step, layout)
    assert [call for call in calls if isinstance(call, tuple)] == [
        ("processors", dict.fromkeys(names)),
        ("links", dict(zip(names, GIVEN["links"], strict=True))),
        ("processors", dict(zip(names, GIVEN["processors"], strict=True))),
        ("processors", {"host 0": 0.2}),
        ("links", {"host 1": 30.0}),
    ]
    places = [calls.index(step) for step in (1, 2, 3, 11, 12)]
    assert [b - a for a, b in pairwise(places)] == [3, 2, 8, 3]


NAMES = ["host 0", "host 1", "host 2", "host 3"]


def even_run(steps=30):
    """A run in which a task takes 10, 20, 30 and 60 ms, and the rest of a step 50 ms."""
    tasks = np.full((steps, 4), 4)
    busy = tasks * np.array([0.01, 0.02, 0.03, 0.06])
    return on_hosts.Run("uta", 0, busy.max(axis=1) + 0.05, busy, np.zeros((steps, 4)), tasks)


def test_a_run_is_the_same_after_a_file(tmp_path):
    run = even_run()
    run.write(tmp_path)
    again = on_hosts.Run.read(tmp_path / "uta-0.json")
    assert (again.policy, again.seed) == ("uta", 0)
    for name in ("seconds", "busy", "latency", "tasks"):
        np.testing.assert_array_equal(getattr(again, name), getattr(run, name))


def test_forecasts_hold_the_rest_of_the_even_run_and_end_at_the_best_split(tmp_path):
    from ata_gym.bench.logs import read_log

    run = even_run()
    expected = four_hosts.forecasts(run, NAMES, None)
    assert set(expected) == {*on_hosts.POLICIES, on_hosts.RACE}
    steps, computed = expected["uta"]
    np.testing.assert_allclose(steps, run.seconds[1:])
    np.testing.assert_allclose(computed, run.longest[1:])
    # 8 x 10 ms, 4 x 20 ms, 3 x 30 ms and 1 x 60 ms: by brute force nothing is below 90 ms
    splits = (
        (a, b, c, 16 - a - b - c)
        for a in range(17)
        for b in range(17 - a)
        for c in range(17 - a - b)
    )
    best = min(max(np.multiply(split, [0.01, 0.02, 0.03, 0.06])) for split in splits)
    steps, computed = expected["lb-bsp-ema"]
    assert steps[-1] == pytest.approx(best + 0.05)
    np.testing.assert_allclose(steps - computed, 0.05)
    four_hosts.write_times(run, NAMES, tmp_path / "even.csv")
    log = read_log(tmp_path / "even.csv", warmup=0)
    np.testing.assert_allclose(log.seconds, run.busy[1:], atol=1e-6)


def test_the_table_says_by_how_many_percent_forecasts_were_wrong():
    run = even_run()
    doubled = on_hosts.Run("default", 0, 2 * run.seconds, 2 * run.busy, run.latency, run.tasks)
    expected = (run.seconds[1:], run.longest[1:])
    text = four_hosts.table({"default": [doubled]}, {"default": [expected]}, 16)
    cells = [cell.strip() for cell in text.splitlines()[-1].strip("|").split("|")]
    assert cells == ["default", "580", "580", "580", "290", "-50.0", "-50.0", "-50.0"]


def test_the_script_shows_its_options_without_rights(monkeypatch, capsys):
    script = FOLDER / "four_hosts.py"
    monkeypatch.setattr(sys, "argv", [str(script), "--help"])
    # A script finds what lies beside it.
    monkeypatch.syspath_prepend(FOLDER)
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(script), run_name="__main__")
    assert ended.value.code in {0, None}
    shown = capsys.readouterr().out
    for option in ("--processors", "--throttle", "--slow-link", "--problem-data", "--no-race"):
        assert option in shown
