"""The ways to do the steps of a log again: the best fixed split, without the worst, on a part."""

import json
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from ata_gym import bench
from ata_gym.bench.logs import Log
from ata_gym.bench.studies.what_if import study, waiting, ways
from ata_gym.bench.studies.what_if.fixed_costs import with_fixed_costs
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


def late_log(steps=40, seed=0):
    """Even shares of three equal workers, one of which pays a long latency in each step."""
    rng = np.random.default_rng(seed)
    work = rng.gamma(200.0, 0.02, (steps, 3))
    latency = np.array([0.1, 0.2, 4.0]) * rng.gamma(200.0, 0.005, (steps, 3))
    return replace(log_of(work + latency, "late"), latency=latency)


def test_a_latency_is_paid_once_by_who_has_tasks_in_every_way():
    log = late_log()
    budget = 24
    times = ways.task_times(log, budget)
    np.testing.assert_allclose(times, log.work * 3 / budget)
    way = {one.name: one for one in simple_ways(log, times, budget)}
    np.testing.assert_allclose(way["as it is"].round_times, log.seconds.max(axis=1))
    split = best_split(times, budget, log.latency)
    late = split * times + (split > 0) * log.latency
    np.testing.assert_allclose(way["best fixed split"].round_times, late.max(axis=1))
    # the split that takes the latency for work is worse
    blind = best_split(log.seconds * 3 / budget, budget)
    blind_times = (blind * times + (blind > 0) * log.latency).max(axis=1)
    assert way["best fixed split"].round_times.mean() < 0.97 * blind_times.mean()
    # without the late worker, the others have half of the work more, and pay what they paid
    pair = 1.5 * log.work[:, :2] + log.latency[:, :2]
    np.testing.assert_allclose(way["without w2"].round_times, pair.max(axis=1))


@pytest.mark.parametrize("policy", ["default", "race", "dispatch"])
def test_a_policy_pays_the_latencies_of_the_log(policy):
    log = late_log()
    budget = 24
    times = ways.task_times(log, budget)
    way, _ = ways.played(policy, times, budget, latency=log.latency)
    way_without, _ = ways.played(policy, times, budget)
    best = simple_ways(log, times, budget)[1].round_times
    assert way.round_times[10:].mean() < 1.06 * best[10:].mean()
    assert way.round_times.mean() > 1.1 * way_without.round_times.mean()


def test_a_perfect_split_is_the_least_over_all_splits_in_parts_of_tasks():
    rng = np.random.default_rng(2)
    for _ in range(20):
        log = late_log(2, int(rng.integers(1_000)))
        ends = waiting._perfect(log, 24)
        times = ways.task_times(log, 24)
        for end, task, late in zip(ends, times, log.latency, strict=True):
            assert np.sum(np.maximum(end - late, 0.0) / task) == pytest.approx(24.0)


def test_the_answer_uses_the_latency_and_the_state_holds_it(tmp_path):
    log = late_log()
    results = bench.what_if(log, policies="default", without="race,dispatch", out=tmp_path)
    saved = results.table().filter(quantity="saved")
    default = saved.filter(policy="distribution-learner")["mean"].item()
    fixed = saved.filter(policy="best fixed split")["mean"].item()
    assert 0.1 < fixed - 0.05 < default < fixed + 0.05
    shares = Allocator(log.workers, 24, prior=tmp_path / "state.json").allocate()
    assert shares["w2"] < shares["w0"]


def test_a_worker_that_only_pays_latencies_is_refused():
    log = late_log()
    only = replace(log, latency=np.where(np.arange(3) == 1, log.seconds, log.latency))
    with pytest.raises(ValueError, match="the times of worker w1 are all 0"):
        bench.what_if(only, policies="default")


def sized_log(tasks, cost, seed=0):
    rng = np.random.default_rng(seed)
    seconds = cost + tasks * 0.2 * rng.gamma(100.0, 0.01, tasks.shape)
    return Log("sizes", ["a", "b", "c"], seconds, tasks)


def test_shares_of_different_sizes_show_a_fixed_cost_where_there_is_one():
    rng = np.random.default_rng(5)
    tasks = rng.integers(2, 12, (60, 3)).astype(float)
    covered = 0
    for seed in range(100):
        log = with_fixed_costs(sized_log(tasks, np.array([0.0, 0.5, 2.0]), seed))
        assert log.latency[:, 1:].min() > 0.3
        covered += log.latency[:, 0].max() == 0.0
    assert covered >= 95
    assert "a fixed cost of b: 0." in log.remarks[0]
    np.testing.assert_allclose(log.latency[0], [0.0, 0.5, 2.0], atol=0.1)
    none = with_fixed_costs(sized_log(tasks, np.zeros(3)))
    assert none.latency is None
    assert none.remarks[0].startswith("Shares of different sizes show no fixed cost")


def test_sizes_that_follow_the_speeds_show_no_fixed_cost():
    """A worker that is slow for some time, and has fewer tasks then: 8 tasks in 8, 3 tasks in 6."""
    slow = (np.arange(60) // 10 % 2 == 1)[:, None]
    tasks = np.where(slow, 3.0, 8.0) * np.ones((60, 3))
    log = sized_log(tasks, np.zeros(3))
    log = with_fixed_costs(replace(log, seconds=log.seconds * np.where(slow, 2.0, 1.0)))
    assert log.latency is None
    assert "cannot say whether shares have a fixed cost" in log.remarks[0]


def test_the_answer_uses_a_fixed_cost_that_the_sizes_show():
    tasks = np.random.default_rng(1).integers(4, 9, (40, 3)).astype(float)
    results = bench.what_if(
        sized_log(tasks, np.array([0.0, 0.0, 3.0])), policies="uta", without="race,dispatch"
    )
    assert results.remarks[0].startswith("Shares of different sizes show a fixed cost of c")
    equal = log_of(np.ones((20, 3)))
    assert with_fixed_costs(equal) is equal
