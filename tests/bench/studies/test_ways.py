"""The ways to do the steps of a log again: the best fixed split, without the worst, on a part."""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ata_gym import bench
from ata_gym.bench.logs import Log
from ata_gym.bench.studies.what_if import study, ways
from ata_gym.bench.studies.what_if.ways import played_steps, remarks_on_parts, simple_ways
from ata_gym.theory.allocation.hindsight_split import best_split
from ata_policies import Allocator


def random_times(seed):
    """Times of a few workers: continuous, in ties, the same in all steps, with a slow worker."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(1, 30)), int(rng.integers(2, 8)))
    kind = seed % 4
    if kind == 0:
        return rng.gamma(2.0, 1.0, shape)
    if kind == 1:
        return rng.integers(0, 4, shape).astype(float)
    if kind == 2:
        return np.tile(rng.integers(1, 5, shape[1]).astype(float), (shape[0], 1))
    return rng.gamma(50.0, 0.02, shape) * np.where(np.arange(shape[1]) == 0, 3.0, 1.0)


def log_of(times, name="job"):
    workers = [f"w{i}" for i in range(times.shape[1])]
    return Log(name, workers, times, np.ones_like(times))


def total(split, times):
    return (split * times).max(axis=1).sum()


@pytest.mark.parametrize("seed", range(40))
def test_no_move_of_one_task_makes_the_best_split_faster(seed):
    times = random_times(seed)
    n = times.shape[1]
    budget = 1 + seed % (5 * n)
    split = best_split(times, budget)
    assert split.sum() == budget
    assert (split >= 0).all()
    least = total(split, times)
    for giver in np.flatnonzero(split):
        for taker in range(n):
            moved = split.copy()
            moved[giver] -= 1
            moved[taker] += 1
            assert total(moved, times) >= least * (1.0 - 1e-11)


def test_the_best_split_counts_all_steps_of_a_log_of_many():
    # half of the workers is slow, but in every third step
    times = np.ones((2_000, 60))
    times[1::3, :30] = times[2::3, :30] = 2.0
    split = best_split(times, 480)
    assert (split[:30] < split[30:]).all()
    assert total(split, times) < total(best_split(times[::3], 480), times)


@pytest.mark.parametrize("seed", range(20))
def test_without_the_worst_is_the_best_of_all_without_one(seed):
    times = random_times(seed)
    n = times.shape[1]
    log = log_of(times)
    way = simple_ways(log, ways.task_times(log, 4 * n), 4 * n)[2]
    others = [np.delete(times, leaver, axis=1) * (n / (n - 1)) for leaver in range(n)]
    least = min(other.max(axis=1).sum() for other in others)
    assert way.round_times.sum() == pytest.approx(least)
    leaver = log.workers.index(way.name.removeprefix("without "))
    np.testing.assert_allclose(way.round_times, others[leaver].max(axis=1))
    np.testing.assert_allclose(way.worker_times, others[leaver].sum(axis=1))


def test_how_many_steps_are_played_follows_from_the_sizes():
    for policy in ("ata", "race", "dispatch"):
        for n in (2, 64, 256, 1_024, 20_000):
            counts = [played_steps(policy, steps, n, 8 * n) for steps in (3, 40, 400, 100_000)]
            assert counts == sorted(counts)
            assert all(k <= steps for k, steps in zip(counts, (3, 40, 400, 100_000), strict=True))
            assert played_steps(policy, 400, 2 * n, 16 * n) <= played_steps(policy, 400, n, 8 * n)
            # who learns from step to step needs some
            assert counts[2] >= 5 or policy == "dispatch"
    for n, steps in ((8, 100_000), (64, 8_500), (256, 400)):
        assert played_steps("ata", steps, n, 8 * n) == steps
    assert played_steps("dispatch", 400, 64, 512) == 400
    # the cure is one
    for n, cure in ((2_048, "fewer --tasks"), (20_000, "jobs of fewer workers")):
        assert cure in remarks_on_parts({"dispatch": 0}, 400, n, 8 * n)[0]
    assert played_steps("dispatch", 400, 1_024, 2 * 1_024) > 0
    counts = {name: played_steps(name, 400, 64, 512) for name in ("ata", "dispatch")}
    assert remarks_on_parts(counts, 400, 64, 512) == []


STEPS = 60
PART = 30


@pytest.fixture
def part_only(monkeypatch):
    """Half of the steps of a job of 3 workers x 60 steps are played, and a quarter in a race."""
    monkeypatch.setattr(ways, "_MOST_WORK", 3 * 24 * PART)


def slow_log():
    rng = np.random.default_rng(0)
    times = rng.gamma(50.0, 0.02, (STEPS, 3))
    times[:, 2] *= 3.0
    return log_of(times)


def round_times(results, way):
    return np.diff(results.records.filter(policy=way)["runtime"].to_numpy(), prepend=0.0)


@pytest.mark.usefixtures("part_only")
def test_of_a_large_job_policies_play_the_first_steps_and_are_compared_on_these(tmp_path):
    log = slow_log()
    results = bench.what_if(log, policies="default,uta", out=tmp_path)
    logged = log.seconds.max(axis=1)
    counts = {
        "as it is": STEPS,
        "best fixed split": STEPS,
        "without w2": STEPS,
        "distribution-learner": PART,
        "uta": PART,
        "race": PART // 2,
        "dispatch": PART // 16,
    }
    lengths = results.records.group_by("policy").len()
    assert dict(lengths.iter_rows()) == counts
    saved = dict(results.table().filter(quantity="saved").select("policy", "mean").rows())
    for way, count in counts.items():
        times = round_times(results, way)
        assert saved[way] == pytest.approx(1.0 - times.sum() / logged[:count].sum(), abs=1e-9)
    # work that is shared out evenly costs what it did, on the same steps
    assert saved["uta"] == pytest.approx(0.0, abs=1e-9)
    assert results.compare("uta", "as it is").ratio.mean == pytest.approx(1.0)
    figures = {
        figure["name"]: figure
        for figure in json.loads(results.content.files["what-if.json"])["alternatives"]
    }
    assert {way: figures[way]["steps"] for way in figures} == {
        way: count for way, count in counts.items() if way != "as it is"
    }
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "learns, first 30 steps" in page
    assert "the first 30 steps at price 0" in results.content.findings
    remarks = " ".join(results.content.remarks)
    assert "distribution-learner on 30, uta on 30, race on 15, dispatch on 1." in remarks


@pytest.mark.usefixtures("part_only")
def test_the_rest_of_each_step_is_added_to_the_steps_that_are_played():
    log = replace(slow_log(), rest=np.linspace(0.1, 2.0, STEPS))
    results = bench.what_if(log, policies="uta")
    assert log.rest is not None
    even = log.seconds[:PART].max(axis=1) + log.rest[:PART]
    np.testing.assert_allclose(round_times(results, "uta"), even)
    race = round_times(results, "race")
    saved = results.table().filter(policy="race", quantity="saved")["mean"].item()
    assert saved == pytest.approx(1.0 - race.sum() / log.step_times[: PART // 2].sum())


@pytest.mark.usefixtures("part_only")
def test_the_first_steps_are_played_as_if_the_log_ended_with_them(monkeypatch):
    part = bench.what_if(slow_log(), policies="default,lb-bsp-ema")
    monkeypatch.undo()
    short = bench.what_if(slow_log().part(slice(PART)), policies="default,lb-bsp-ema")
    for way in ("distribution-learner", "lb-bsp-ema"):
        np.testing.assert_array_equal(round_times(part, way), round_times(short, way))
    assert part.content.files["state.json"] == short.content.files["state.json"]


@pytest.mark.parametrize("policies", ["default", "uta"])
def test_the_state_is_that_of_the_default_after_all_times(policies):
    log = slow_log()
    results = bench.what_if(log, policies=policies)
    allocator = Allocator(log.workers, 24)
    for step in ways.task_times(log, 24).tolist():
        tasks = allocator.allocate()
        names = zip(log.workers, step, strict=True)
        allocator.observe({name: [time] * tasks[name] for name, time in names if tasks[name]})
    state = json.loads(results.content.files["state.json"])["allocator"]
    assert state == json.loads(json.dumps(allocator.state_dict()))


@pytest.mark.usefixtures("part_only")
def test_each_bar_ends_with_the_steps_that_are_played(monkeypatch):
    shown = {}
    totals = {}

    @contextmanager
    def bars(by_task):
        totals.update(by_task)
        yield lambda task, done: shown.update({task: done})

    monkeypatch.setattr(study, "progress_bars", bars)
    call = partial(bench.what_if, slow_log(), policies="default,uta")
    call()
    others = {"race": PART // 2, "dispatch": PART // 16}
    assert totals == shown == {"distribution-learner": PART, "uta": PART, **others}
