"""What a log can say of a policy that did not write it: support by brute force, and doubly robust
estimates beside the costs of the policies themselves, in a small world whose logs are drawn.
"""

import json
import re
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.logs import Log, read_log
from ata_gym.bench.studies.what_if.off_policy.doubly_robust import (
    effective_size,
    round_time,
    worker_time,
)
from ata_gym.bench.studies.what_if.off_policy.support import cannot_bear, support
from ata_gym.bench.studies.what_if.savings import saved
from ata_gym.cli import app
from ata_gym.cluster import RoundRecord, TraceRecorder
from ata_gym.pools import read_trace
from ata_policies import Allocator
from ata_policies.propensities import Propensities

ALLOCATIONS = np.array([[2, 1, 0], [1, 1, 1], [0, 1, 2]])
"""What the policies of the small world choose from; B = 3."""
USUAL = np.array([0.15, 0.15, 0.7])
"""How likely each is in the log where worker 2 is fast; elsewhere in the other order."""
MEANS = np.array([2.0, 1.0, 1.0])
TARGET = np.array([0.5, 0.2, 0.3])
"""How likely each is by the policy whose cost is asked for."""


def levels(steps, changing):
    """(steps, workers): the mean task times, which the model of the estimates does not know."""
    means = np.tile(MEANS, (steps, 1))
    if changing:
        means[1::2, 2] *= 4.0
    return means


def drawn_log(rng, steps=40, *, changing=True, noise=True):
    """A log whose policy knows when worker 2 is fast, and looks at the last time of worker 0."""
    means = levels(steps, changing)
    tasks = np.zeros((steps, 3))
    seconds = np.zeros((steps, 3))
    propensity = np.zeros((steps, 3))
    chosen = np.zeros(steps)
    last = MEANS[0]
    for k in range(steps):
        chances = USUAL[::-1] if changing and k % 2 else USUAL
        if changing and last > 1.2 * MEANS[0]:
            chances = 0.5 * chances + 0.5 / 3
        place = rng.choice(3, p=chances)
        tasks[k] = ALLOCATIONS[place]
        if noise:
            seconds[k] = rng.gamma(4.0 * np.maximum(tasks[k], 1e-9)) * means[k] / 4.0
        else:
            seconds[k] = tasks[k] * means[k]
        propensity[k] = chances @ (ALLOCATIONS > 0)
        chosen[k] = chances[place]
        if tasks[k, 0]:
            last = seconds[k, 0] / tasks[k, 0]
    seconds[tasks == 0] = 0.0
    return Log(
        *("drawn", ["a", "b", "c"], seconds, tasks),
        propensity=propensity,
        allocation_propensity=chosen,
        before=MEANS.copy(),
    )


def target_tasks(rng, steps=40):
    """What the policy chooses whose cost is asked for, whatever it sees."""
    return ALLOCATIONS[rng.choice(3, steps, p=TARGET)].astype(float)


def true_costs(changing, steps=40):
    """The mean round time and worker time of the target's steps, when it plays itself."""
    rng = np.random.default_rng(99)
    means = levels(steps, changing)
    costs = []
    for _ in range(4_000):
        tasks = target_tasks(rng, steps)
        seconds = rng.gamma(4.0 * np.maximum(tasks, 1e-9)) * (tasks > 0) * means / 4.0
        costs.append((seconds.max(axis=1).mean(), seconds.sum(axis=1).mean()))
    return np.mean(costs, axis=0)


def estimates_over(logs, rng):
    """(logs, 2): doubly robust round time and worker time, and (logs, 2): by replay alone."""
    corrected, replayed = [], []
    for log in logs:
        tasks = target_tasks(rng)
        share_times = tasks * log.task_times
        corrected.append(
            [estimate(log, tasks, 3).values.mean() for estimate in (round_time, worker_time)]
        )
        replayed.append([share_times.max(axis=1).mean(), share_times.sum(axis=1).mean()])
    return np.array(corrected), np.array(replayed)


def errors(values, truth):
    """By how many standard errors the means over the logs are from the truth."""
    return np.abs(values.mean(axis=0) - truth) / (values.std(axis=0) / len(values) ** 0.5)


def test_estimates_are_unbiased_where_the_model_is_wrong_and_replay_is_not():
    rng = np.random.default_rng(0)
    logs = [drawn_log(rng) for _ in range(1_200)]
    corrected, replayed = estimates_over(logs, rng)
    truth = true_costs(changing=True)
    assert (errors(corrected, truth) < 4).all()
    assert (errors(replayed, truth) > 15).all()
    # far more than noise: the means of replay are off by a tenth and more
    assert (np.abs(replayed.mean(axis=0) / truth - 1) > 0.1).all()


def test_estimates_are_unbiased_where_propensities_are_wrong_and_the_model_is_right():
    rng = np.random.default_rng(1)
    truth = true_costs(changing=False)[1]
    logs = [drawn_log(rng, changing=False) for _ in range(600)]
    wrong = [replace(log, propensity=np.clip(log.propensity**2, 0.1, 0.9)) for log in logs]
    corrected, _ = estimates_over(wrong, rng)
    assert errors(corrected[:, 1], truth) < 4
    # without a model, the recorded times over the wrong propensities are far off
    weighted = [
        (target_tasks(rng) * log.present / log.propensity * log.task_times).sum(axis=1).mean()
        for log in wrong
    ]
    assert errors(np.array(weighted), truth) > 10
    # times without noise: any weights give the cost of the allocations itself
    log = drawn_log(rng, changing=False, noise=False)
    log = replace(log, allocation_propensity=np.full(40, 0.37), propensity=np.full((40, 3), 0.21))
    tasks = target_tasks(rng)
    np.testing.assert_allclose(round_time(log, tasks, 3).values, (tasks * MEANS).max(axis=1))
    np.testing.assert_allclose(worker_time(log, tasks, 3).values, (tasks * MEANS).sum(axis=1))


def test_intervals_hold_the_true_ratio_of_costs():
    rng = np.random.default_rng(2)
    truth = true_costs(changing=True, steps=200)
    of_log = np.mean(
        [
            (log.seconds.max(axis=1).mean(), log.seconds.sum(axis=1).mean())
            for log in (drawn_log(rng, 200) for _ in range(300))
        ],
        axis=0,
    )
    held = []
    for _ in range(150):
        log = drawn_log(rng, 200)
        tasks = target_tasks(rng, 200)
        for place, (estimate, logged) in enumerate(
            [(round_time, log.seconds.max(axis=1)), (worker_time, log.seconds.sum(axis=1))]
        ):
            interval = saved(estimate(log, tasks, 3).values, logged)
            held.append(interval.low <= 1 - truth[place] / of_log[place] <= interval.high)
    assert np.mean(held) > 0.9


def test_an_estimate_of_a_step_is_that_of_its_formula():
    log = Log(
        *("job", ["a", "b", "c"]),
        np.array([[2.0, 3.0, 5.0], [4.0, 0.0, 7.0]]),
        np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0]]),
        propensity=np.array([[1.0, 1.0, 1.0], [0.5, 0.25, 0.8]]),
        allocation_propensity=np.array([1.0, 0.4]),
    )
    tasks = np.array([[1.0, 1.0, 1.0], [1.0, 2.0, 0.0]])
    # the recorded time of a task of a is 2, as before, and b has none
    assert worker_time(log, tasks, 3).values.tolist() == [10.0, 2.0 + 2 * 3.0]
    assert worker_time(log, tasks, 3).weights.tolist() == pytest.approx([1.0, (1 / 0.5) / 3])
    assert round_time(log, tasks, 3).values.tolist() == [5.0, 6.0]
    same = np.array([[1.0, 1.0, 1.0], [2.0, 0.0, 1.0]])
    assert round_time(log, same, 3).values[1] == pytest.approx(5.0 + (7.0 - 5.0) / 0.4)
    assert worker_time(log, same, 3).values[1] == pytest.approx(4.0 + 5.0 + (7.0 - 5.0) / 0.8)
    assert effective_size(np.array([3.0, 1.0])) == pytest.approx(1.6)


def test_support_is_what_is_left_when_each_task_of_the_log_is_taken_once():
    rng = np.random.default_rng(3)
    played = rng.multinomial(6, [0.4, 0.3, 0.2, 0.1], 30)
    logged = rng.multinomial(6, [0.1, 0.2, 0.3, 0.4], 30)
    times = rng.gamma(4.0, size=(30, 4))
    before = np.ones(4)
    log = Log("job", list("abcd"), times * logged, logged.astype(float), before=before)
    counted = support(log, played.astype(float), 6)
    last = before.copy()
    for step in range(30):
        last = np.where(logged[step] > 0, times[step], last)
        recorded_tasks = np.repeat(range(4), logged[step]).tolist()
        absent = set(range(4)) - set(recorded_tasks)
        lacking = []
        elsewhere = 0
        for worker in np.repeat(range(4), played[step]).tolist():
            elsewhere += worker in absent
            if worker in recorded_tasks:
                recorded_tasks.remove(worker)
            else:
                lacking.append(worker)
        assert counted.not_in_log[step] == len(lacking)
        assert counted.from_other_steps[step] == elsewhere
        assert counted.time_not_in_log[step] == pytest.approx(last[lacking].sum())
    distance = 0.5 * np.abs(played / 6 - logged / 6).sum(axis=1)
    np.testing.assert_allclose(counted.not_in_log / counted.tasks, distance)


def alone(present, times):
    """A log of two workers, of which the second has tasks in some steps only."""
    tasks = np.column_stack([np.full(len(present), 2.0), np.where(present, 1.0, 0.0)])
    seconds = np.column_stack([np.full(len(present), 2.0), np.where(present, times, 0.0)])
    return Log("job", ["a", "b"], seconds, tasks, before=np.ones(2))


def test_a_log_that_lacks_a_worker_cannot_bear_the_answer_and_says_why():
    rng = np.random.default_rng(4)
    steps = np.arange(200)
    noise = rng.gamma(20.0, 0.05, 200)
    even = np.ones((200, 2))
    rare = cannot_bear(alone(steps % 50 == 0, noise), even)
    assert (
        rare
        == "49 % of its tasks are of worker b in other steps than the 4 in which the log has it"
    )
    gap = (steps < 60) | (steps >= 120)
    assert cannot_bear(alone(gap, noise), even) == ""
    changed = cannot_bear(alone(gap, noise * np.where(steps < 90, 1.0, 2.0)), even)
    assert changed == (
        "15 % of its tasks are of worker b, whose times change, in 60 steps that are in gaps of 10"
        " or more without it"
    )
    # a policy that hardly uses the worker can be answered for
    assert cannot_bear(alone(gap, noise * steps), even * [1.0, 0.05]) == ""
    # short gaps are borne, and so is a log without any
    assert cannot_bear(alone(steps % 2 == 0, noise * steps), even) == ""
    assert cannot_bear(alone(steps >= 0, noise * steps), even) == ""
    steady = [cannot_bear(alone(gap, rng.gamma(20.0, 0.05, 200)), even) for _ in range(60)]
    assert sum(map(bool, steady)) <= 5


def test_weights_of_which_nothing_follows_are_refused_by_name():
    rng = np.random.default_rng(5)
    log = drawn_log(rng, 200)
    tasks = target_tasks(rng, 200)
    assert round_time(log, tasks, 3).refusal == worker_time(log, tasks, 3).refusal == ""
    never = replace(log, propensity=np.where(log.present, log.propensity, 0.0))
    assert re.fullmatch(
        r"in \d+ steps it gives tasks to workers that had none with certainty \(propensity 0\),"
        r" first to [abc] in step \d+",
        worker_time(never, tasks, 3).refusal,
    )
    elsewhere = np.tile([3.0, 0.0, 0.0], (200, 1))
    refusal = round_time(log, elsewhere, 3).refusal
    assert refusal == (
        "it has the allocation of the log in 0 steps, and the weights say as much as 0.0 of 200"
        " steps (effective sample size), where 30 are needed"
    )
    halved = replace(log, allocation_propensity=log.allocation_propensity / 2)
    twice = 2 * round_time(log, tasks, 3).weights
    assert (
        f"the weights are {twice.mean():.2f} on average, and not 1 within 3 standard errors of"
        f" {twice.std(ddof=1) / 200**0.5:.2f}"
    ) in round_time(halved, tasks, 3).refusal
    # all workers in all steps with certainty: replay and estimate are one
    full = replace(
        log, tasks=np.ones((200, 3)), seconds=log.task_times, propensity=np.ones((200, 3))
    )
    full_estimate = worker_time(full, tasks, 3)
    assert full_estimate.refusal == ""
    np.testing.assert_allclose(full_estimate.values, (tasks * full.task_times).sum(axis=1))


def recorded(path, policy="epsilon-uniform:c=40", rounds=300, n=4, budget=3, seed=0):
    """Write the trace of a random policy, with propensities."""
    rng = np.random.default_rng(seed)
    allocator = Allocator([f"w{i}" for i in range(n)], budget, policy)
    records = []
    with TraceRecorder(path, propensities=True) as recorder:
        for number in range(1, rounds + 1):
            tasks = allocator.allocate()
            seconds = {
                name: tuple(rng.gamma(8.0, (place + 1) / 8, tasks[name]).tolist())
                for place, name in enumerate(tasks)
                if tasks[name]
            }
            record = RoundRecord(
                *(number, tasks, seconds, 1.0), propensities=allocator.propensities(199)
            )
            allocator.observe(seconds)
            recorder.add(record)
            records.append(record)
    return records


def test_a_trace_with_propensities_is_read_as_it_was_written(tmp_path):
    path = tmp_path / "times.csv"
    records = recorded(path, rounds=30)
    log = read_log(path)
    first = 30 - len(log.seconds)
    assert log.step_names == [str(number + 1) for number in range(first, 30)]
    for row, record in enumerate(records[first:]):
        assert log.propensity[row].tolist() == list(record.propensities.workers.values())
        assert log.allocation_propensity[row] == record.propensities.allocation
        assert log.tasks[row].tolist() == list(record.tasks.values())
        assert log.seconds[row].sum() == pytest.approx(record.worker_time)
    seen = {name for record in records[:first] for name in record.seconds}
    assert seen == {"w0", "w1", "w2", "w3"}
    assert "in which they were given no task" in " ".join(log.remarks)
    # the times alone are a pool, as in any trace
    pool = read_trace(path, worker="worker", duration="duration")
    times = [time for record in records for time in record.seconds.get("w3", ())]
    assert pool.mean()[3] == pytest.approx(np.mean(times))


def test_the_answer_has_the_estimates_and_what_does_not_follow(tmp_path):
    path = tmp_path / "times.csv"
    out = tmp_path / "out"
    recorded(path)
    results = bench.what_if(path, policies="uta,restarting-beta", out=out)
    table = results.table()
    assert bench.read(out).table().equals(table)
    data = json.loads(results.content.files["what-if.json"])
    assert data["budget"] == 3
    ways = {way["name"]: way for way in data["alternatives"]}
    log = read_log(path)
    steps = results.records.filter(policy="uta")
    assert len(steps) == len(log.seconds)
    estimated = ways["uta"]["doubly_robust"]
    assert set(estimated) == {"round_time", "worker_time"}
    assert 30 < estimated["round_time"]["effective_steps"] < len(log.seconds)
    row = table.filter(policy="uta", quantity="saved_doubly_robust")
    assert row["mean"].item() == estimated["round_time"]["saved"]
    assert row["high"].item() - row["mean"].item() == pytest.approx(estimated["round_time"]["half"])
    not_in_log = table.filter(policy="uta", quantity="not_in_log")["mean"].item()
    assert 0 < not_in_log == ways["uta"]["not_in_log"]["tasks"] < 1
    # of a race or what is known in hindsight nothing is estimated
    for way in ("race", "dispatch", "best fixed split"):
        assert ways[way]["doubly_robust"] == {}
    assert any(
        remark.startswith("There is no doubly robust runtime of restarting-beta: ")
        for remark in results.remarks
    )
    # the verdict is by the estimate, not by replay
    saving = estimated["round_time"]
    assert f"uta would save {100 * saving['saved']:z.1f} % " in data["verdict"]
    assert data["verdict"].endswith("This is the doubly robust estimate.")
    page = (out / "report.html").read_text("utf-8")
    assert "DR saves %" in page
    # without them it is the replay of any log
    plain = bench.what_if(path, policies="uta", doubly_robust=False)
    assert "saved_doubly_robust" not in set(plain.table()["quantity"])


def test_a_policy_that_wrote_the_log_is_played_with_other_random_numbers(tmp_path):
    path = tmp_path / "times.csv"
    recorded(path, policy="uta", budget=2)
    data = json.loads(bench.what_if(path, policies="uta").content.files["what-if.json"])
    (uta,) = (way for way in data["alternatives"] if way["name"] == "uta")
    # with the random numbers of the log, it would have given the very tasks of the log
    assert uta["not_in_log"]["tasks"] == pytest.approx(0.5, abs=0.08)
    assert abs(uta["doubly_robust"]["worker_time"]["saved"]) < (
        2 * uta["doubly_robust"]["worker_time"]["half"]
    )


def test_a_log_without_propensities_is_refused_where_they_are_asked_for(tmp_path):
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder:
        for number in range(1, 13):
            seconds = {"a": (1.0 + number,), "b": (2.0, 0.1 * number)}
            recorder.add(RoundRecord(number, {"a": 1, "b": 2}, seconds, 1.0))
    done = CliRunner().invoke(app, ["what-if", str(path), "--doubly-robust"])
    assert done.exit_code == 2
    assert re.search(
        r"times\.csv has no propensities, which doubly robust estimates need: record them with"
        r" TraceRecorder\(path, propensities=True\)",
        " ".join(done.stderr.split()),
    )


@pytest.mark.parametrize(
    ("field", "values", "sentence"),
    [
        ("propensity", [[0.5, np.nan]] * 12, "the propensity of worker b in step 1 must be a prob"),
        ("propensity", [[0.5, 1.5]] * 12, "the propensity of worker b in step 1 .* not 1.5"),
        ("propensity", [[0.5, 0.0]] * 12, "the propensity of worker b in step 1 .* not 0"),
        ("propensity", [0.5, 0.5], r"propensity must have the shape \(12, 2\), not \(2,\)"),
        ("allocation_propensity", [0.0] * 12, "allocation_propensity in step 1 must be a prob"),
        ("allocation_propensity", [[0.5]] * 12, r"must have the shape \(12,\), not \(12, 1\)"),
    ],
)
def test_propensities_that_are_none_are_refused_in_one_sentence(field, values, sentence):
    times = np.ones((12, 2))
    with pytest.raises(ValueError, match=sentence):
        Log("job", ["a", "b"], times, times, **{field: np.array(values)})


@pytest.mark.parametrize(
    ("propensities", "sentence"),
    [
        (None, "round 1 has no propensities"),
        (Propensities({"a": 0.5}, 0.5), "times of worker 'b', and no propensity of it"),
        (Propensities({"a": 0.5, "b": np.nan}, 0.5), "of worker 'b' must be .* not nan"),
        (Propensities({"a": 0.5, "b": 0.0}, 0.5), "of worker 'b' must be .*, above 0 to 1, not 0"),
        (Propensities({"a": 0.5, "b": 0.5}, 2), "of the allocation must be .* not 2"),
    ],
)
def test_a_recorder_refuses_them_too_and_writes_nothing(tmp_path, propensities, sentence):
    path = tmp_path / "times.csv"
    record = RoundRecord(1, {"a": 1, "b": 1}, {"a": (1.0,), "b": (2.0,)}, 2.0)
    with TraceRecorder(path, propensities=True) as recorder:
        header = path.read_bytes()
        with pytest.raises(ValueError, match=sentence):
            recorder.add(replace(record, propensities=propensities))
        assert path.read_bytes() == header
        # The cures: one of each worker, or none.
        recorder.add(replace(record, propensities=Propensities({"a": 0.5, "b": 0.5}, 0.25)))
        assert path.read_bytes() > header
    with TraceRecorder(tmp_path / "plain.csv") as recorder:
        recorder.add(replace(record, propensities=None))
    with pytest.raises(ValueError, match="holds something else"):
        TraceRecorder(path)


def test_a_round_that_was_not_played_as_it_was_allocated_is_left_out(tmp_path):
    path = tmp_path / "times.csv"
    likely = Propensities({"a": 0.5, "b": 0.5}, 0.25)
    played = RoundRecord(1, {"a": 2, "b": 0}, {"a": (1.0, 1.5)}, 2.5, propensities=likely)
    # b, which had no task, did one of a worker that was lost
    handed_on = replace(played, round=2, seconds={"a": (1.0,), "b": (2.0,)})
    with TraceRecorder(path, propensities=True) as recorder:
        recorder.add(played)
        with pytest.raises(ValueError, match=r"worker 'b' must be .*, above 0 to 1, not 0"):
            recorder.add(replace(handed_on, tasks={"a": 1, "b": 1}, propensities=certain_of_a()))
        for record in (handed_on, replace(handed_on, propensities=certain_of_a())):
            recorder.add(record)
        recorder.add(replace(played, round=3))
    lines = path.read_text().splitlines()[1:]
    assert [line.split(",")[1] for line in lines] == ["1"] * 3 + ["3"] * 3
    assert recorder.last_round == 3


def certain_of_a():
    return Propensities({"a": 1.0, "b": 0.0}, 1.0)


def test_values_of_a_file_that_contradict_each_other_are_refused(tmp_path):
    path = tmp_path / "times.csv"
    recorded(path, rounds=30)
    text = path.read_text()
    lines = text.splitlines()
    worker, number, *_, allocation = lines[-1].split(",")
    path.write_text("\n".join([*lines, f"{worker},{number},,0.123,{allocation}"]))
    with pytest.raises(ValueError, match=f"several values of propensity of {worker} in round 30"):
        read_log(path)
    path.write_text(text.replace(lines[-1], lines[-1].rpartition(",")[0] + ","))
    with pytest.raises(ValueError, match="several values of allocation_propensity of 30"):
        read_log(path)
