"""What a straggler costs: the answer of a simulation by hand, from every kind of log."""

import json
import re
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np
import polars as pl
import pytest
from scipy import stats
from typer.testing import CliRunner

from ata_gym import bench
from ata_gym.bench.logs import Log, read_log
from ata_gym.bench.report.statistics import Estimate
from ata_gym.bench.studies.what_if import study as replay
from ata_gym.bench.studies.what_if.answer import who
from ata_gym.bench.studies.what_if.waiting import about_log, heat_frame, when
from ata_gym.bench.studies.what_if.ways import best_split, task_times
from ata_gym.cli import app
from ata_gym.cluster import RoundRecord, Shadow, TraceRecorder
from ata_gym.utils.files import manifest
from ata_policies import AllocationPolicy, Allocator
from tests.benchmarks.coverage import coverage, successive_values
from tests.flips import unseen
from tests.mutated import refused_by_field


def job(n=3, steps=60, seed=0, slow=3.0):
    rng = np.random.default_rng(seed)
    # what they share stays shared
    times = rng.gamma(50.0, 0.02, (steps, n)) * rng.gamma(
        20.0,
        0.05,
        (steps, 1),
    )
    times[:, -1] *= slow
    return times


def frame(times):
    steps, n = times.shape
    step, worker = np.divmod(np.arange(steps * n), n)
    return pl.DataFrame({"rank": worker, "step": step, "seconds": times.ravel()})


def round_times(results, way):
    """(steps,) the time of each step in a way."""
    return np.diff(results.records.filter(policy=way)["runtime"].to_numpy(), prepend=0.0)


def log_of(times, name="job"):
    """A log of workers a, b, ..."""
    return Log(name, list("abcdefgh"[: times.shape[1]]), times, np.ones_like(times))


@pytest.mark.parametrize("name", ["alibaba_job_1.csv", "alibaba_job_4.csv"])
def test_on_recorded_jobs_it_is_a_simulation_of_the_same_times_by_hand(shared_data, name):
    log = read_log(shared_data / name)
    table = (
        pl.read_csv(shared_data / name)
        .pivot("worker", index="time", values="batch_time_norm")
        .sort("time")
    )
    times = table.select(str(i) for i in range(10)).drop_nulls().to_numpy().astype(float)[:100]
    log = log.part(slice(100))
    np.testing.assert_array_equal(log.seconds, times)
    results = bench.what_if(log, policies="restarting-beta")
    figures = json.loads(results.content.files["what-if.json"])
    assert figures["idle"] == pytest.approx(1.0 - times.sum() / (10 * times.max(axis=1).sum()))
    rate = (8 / times).sum(axis=1)  # tasks per unit of time
    assert figures["perfect"] == pytest.approx(1.0 - (80 / rate).sum() / times.max(axis=1).sum())
    is_last = times == times.max(axis=1, keepdims=True)
    slowest = (is_last / is_last.sum(axis=1, keepdims=True)).mean(axis=0)
    np.testing.assert_allclose([worker["last"] for worker in figures["waited_for"]], slowest)
    np.testing.assert_allclose(round_times(results, "as it is"), times.max(axis=1))
    allocator = Allocator(10, 80, "restarting-beta")
    runtime = []
    busy = 0.0
    for step in times / 8:
        tasks = allocator.allocate()
        ends = [count * step[who] for who, count in tasks.items()]
        runtime.append(max(ends))
        busy += sum(ends)
        allocator.observe({who: [step[who]] * count for who, count in tasks.items()})
    np.testing.assert_allclose(round_times(results, "restarting-beta"), runtime, rtol=1e-9)
    worker_time = results.table().filter(policy="restarting-beta", quantity="total_worker_time")
    assert worker_time["mean"].item() == pytest.approx(busy)
    without = [np.delete(times, i, axis=1).max(axis=1).sum() * 10 / 9 for i in range(10)]
    without_worst = round_times(results, f"without {int(np.argmin(without))}")
    assert without_worst.sum() == pytest.approx(min(without))
    # no way to share is faster than a perfect one, and B results end the round
    for other in (
        "race",
        "dispatch",
    ):
        assert (round_times(results, other) >= 80 / rate - 1e-9).all()
        assert round_times(results, other).sum() <= 1.05 * times.max(axis=1).sum()


def test_the_fixed_split_is_the_best_of_all_in_small_cases():
    for seed in range(20):
        time = job(steps=7, seed=seed) / 2
        legal = [np.array(one) for one in product(range(7), repeat=3) if sum(one) == 6]
        least = min((one * time).max(axis=1).sum() for one in legal)
        assert (best_split(time, 6) * time).max(axis=1).sum() == pytest.approx(least)


@pytest.mark.parametrize(
    "kind",
    ["csv", "csv.gz", "parquet", "jsonl", "records"],
)
def test_every_kind_of_log_is_read_to_the_same_times(tmp_path, kind):
    times = job() + 0.5
    path = tmp_path / f"times.{kind}"
    table = frame(times)
    if kind == "records":  # of a TraceRecorder, two tasks each
        path = tmp_path / "records.csv"
        table = table.rename(
            {"rank": "worker", "step": "round", "seconds": "duration"},
        ).with_columns(pl.col("duration") / 2)
        pl.concat([table, table]).sort("round", maintain_order=True).write_csv(path)
    elif kind == "parquet":
        table.write_parquet(path)
    elif kind == "jsonl":
        table.write_ndjson(path)
    else:
        table.write_csv(path, compression="gzip" if kind.endswith("gz") else "uncompressed")
    log = read_log(path)
    np.testing.assert_allclose(log.seconds, times, rtol=1e-9)
    assert (log.tasks == (2 if kind == "records" else 1)).all()


def command(*words):
    return CliRunner().invoke(app, ["what-if", *map(str, words)])


def test_the_command_leaves_a_page_and_a_state_that_starts_the_real_run(tmp_path):
    path = tmp_path / "times.csv"
    out = tmp_path / "out"
    frame(job()).write_csv(path)
    done = command(path, "--policies", "restarting-beta", "--out", out)
    assert done.exit_code == 0, done.output
    assert "Worth it: restarting-beta would save" in done.output
    assert "Worth it" in (out / "report.html").read_text("utf-8")
    data = json.loads(command(path, "--policies", "restarting-beta", "--json").stdout)
    assert data == json.loads((out / "what-if.json").read_text("utf-8"))
    shares = Allocator(["0", "1", "2"], 24, prior=out / "state.json").allocate()
    assert shares["2"] < min(shares["0"], shares["1"])
    assert unseen(out) == []


def test_a_file_and_what_was_read_of_it_give_the_same_answer(tmp_path):
    path = tmp_path / "times.csv"
    frame(job()).rename({"rank": "gpu"}).write_csv(path)
    named = bench.what_if(path, worker_column="gpu", policies="uta")
    read = bench.what_if(read_log(path, worker="gpu"), policies="uta")
    assert named.table().equals(read.table())
    assert named.content.findings == read.content.findings
    with pytest.raises(ValueError, match="log must be a file, a folder, or a Log, not 5"):
        bench.what_if(5)


def test_figures_agree_and_ways_are_compared_over_parts_of_the_log():
    results = bench.what_if(log_of(job()), policies="uta,restarting-beta")
    table = results.table()
    means = {
        (way, quantity): mean
        for way, quantity, mean in table.select(
            "policy",
            "quantity",
            "mean",
        ).rows()
    }
    logged = means["as it is", "runtime"]
    for way in table["policy"].unique():
        saved = 1.0 - means[way, "runtime"] / logged
        assert means[way, "saved"] == pytest.approx(saved, abs=1e-12)
        last = results.records.filter(policy=way).tail(1)
        assert last["runtime"].item() == pytest.approx(means[way, "runtime"])
        assert last["total_worker_time"].item() == pytest.approx(means[way, "total_worker_time"])
    assert means["uta", "saved"] == pytest.approx(0.0, abs=1e-12)
    # the saving is 1 minus a ratio of means, whose interval is of the parts' distances from it
    race_times, logged_times = (round_times(results, way) for way in ("race", "as it is"))
    ratio = race_times.sum() / logged_times.sum()
    distances = (ratio * logged_times - race_times).reshape(10, 6).mean(axis=1)
    deviations = distances - distances.mean()
    correlation = deviations[1:] @ deviations[:-1] / (deviations @ deviations)
    correlation = max(correlation + (1 + 4 * max(correlation, 0)) / 9, 0)
    inflation = 1 + 2 * sum((1 - lag / 10) * correlation**lag for lag in range(1, 10))
    variance = distances.var(ddof=1) / (1 - (inflation - 1) / 9) * inflation / 10
    degrees = 10 * (1 - correlation**2) / (1 + correlation**2) - 1
    half = stats.t.ppf(0.975, degrees) * variance**0.5 / logged_times.mean()
    race = table.filter(policy="race", quantity="saved")
    assert race["high"].item() - race["mean"].item() == pytest.approx(half)
    sentence = results.compare("race", "as it is").sentence
    assert sentence.startswith("race compared with as it is: ")
    assert "over 10 paired log parts" in sentence
    short = bench.what_if(log_of(job()[:6]), policies="uta")
    assert "Nothing follows from one log part" in short.compare("race", "as it is").sentence
    assert short.table()["low"].is_null().all()
    assert json.loads(short.content.files["what-if.json"])["alternatives"][0]["half"] is None


def test_a_killed_call_goes_on_and_another_log_is_refused_as_it_is(tmp_path, monkeypatch):
    log = log_of(job(steps=10))
    call = partial(bench.what_if, log, policies="uta", out=tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(replay, "write_frame", press_ctrl_c)
        with pytest.raises(KeyboardInterrupt):
            call()
    with pytest.raises(ValueError, match="the steps of the log were not played to the end"):
        bench.read(tmp_path)
    results = call()
    assert bench.read(tmp_path).table().equals(results.table())
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for other, tasks in ((log_of(job(steps=10, seed=1)), 8), (log, 4)):
        with pytest.raises(ValueError, match="holds the results of another configuration"):
            bench.what_if(other, tasks=tasks, policies="uta", out=tmp_path)
    assert {path: path.read_bytes() for path in before} == before


def press_ctrl_c(*_):
    raise KeyboardInterrupt


class Halting(AllocationPolicy):
    def allocate(self, state):
        if state.round[0] > 3:
            raise RuntimeError("no idea")
        return np.tile(np.full(3, 8), (len(state.round), 1))


class Even(AllocationPolicy):
    def allocate(self, state):
        return np.tile(np.full(3, 8), (len(state.round), 1))


def test_a_class_plays_and_one_that_fails_leaves_the_others_alone(tmp_path):
    log = replace(log_of(job(steps=10)), workers=["rank=0", "rank=1", "rank=2"])
    with pytest.warns(bench.PolicyFailedWarning, match=r"Halting failed: in step 4: .*no idea"):
        results = bench.what_if(log, policies={"mine": Even, "Halting": Halting}, out=tmp_path)
    assert "no idea" in results.failures["Halting"].traceback.read_text("utf-8")
    np.testing.assert_allclose(round_times(results, "mine"), round_times(results, "as it is"))
    assert "Halting" not in set(results.records["policy"])
    assert [path.name for path in tmp_path.glob("sources/*")] == ["mine.py"]
    assert results.compare(Even, "race").ratio.mean > 1
    assert results.compare("without rank=2", Even).ratio.mean < 1


def test_a_note_is_refused_by_file_and_field(tmp_path):
    bench.what_if(log_of(job(steps=10)), policies="uta", out=tmp_path)
    (tmp_path / manifest.NAME).unlink()
    numbers = {
        *("runtime", "worker_time", "rest", "idle", "perfect"),
        *(f"waited_for[{k}].{name}" for k in (0, 2) for name in ("last", "lost", "mean")),
    }
    assert refused_by_field(tmp_path / "about.json", lambda: bench.read(tmp_path)) == numbers


def test_a_log_in_which_nothing_took_time_is_refused(tmp_path):
    out = tmp_path / "out"
    with pytest.raises(ValueError, match="job: all times are 0"):
        bench.what_if(log_of(np.zeros((10, 3))), out=out)
    assert not out.exists()


def test_of_near_equal_workers_the_verdict_is_no_and_of_a_short_log_nothing():
    rng = np.random.default_rng(0)

    def verdict(times, policies="restarting-beta"):
        results = bench.what_if(log_of(times), policies=policies)
        return results.content.findings.splitlines()[1]

    assert verdict(rng.normal(1.0, 0.002, (60, 4))).startswith(
        "Not worth it: workers are near equal",
    )
    assert re.match(
        r"Not worth it: .*, by other shares alone\. A race, which cancels .*, would save"
        r" 2\d\.\d %\.",
        verdict(np.random.default_rng(0).gamma(25.0, 0.04, (200, 6))),
    )
    assert "too short to say" in verdict(job()[:6], "uta")


def test_the_figures_of_a_log_are_right_in_a_case_by_hand():
    figures = about_log(log_of(np.tile([1.0, 1.0, 3.0], (40, 1))), 24)
    assert [worker["when"] for worker in figures["waited_for"]] == ["", "", "all along"]
    assert [worker["last"] for worker in figures["waited_for"]] == [0.0, 0.0, 1.0]
    assert [worker["lost"] for worker in figures["waited_for"]] == pytest.approx([0, 0, 2 / 3])
    assert figures["idle"] == pytest.approx(4 / 9)
    # 8 tasks each: speeds of 8, 8 and 8/3 tasks per unit of time
    assert figures["perfect"] == pytest.approx(1.0 - 24 / (8 + 8 + 8 / 3) / 3)
    two_tasks = Log("job", ["a", "b"], np.array([[2.0, 6.0]]), np.array([[2.0, 2.0]]))
    assert task_times(two_tasks, 8).tolist() == [[0.5, 1.5]]


@pytest.mark.parametrize(
    ("content", "words", "sentence"),
    [
        (
            "a,b\n1,2\n",
            (),
            (
                r"the column of the worker and the column of the duration are not found among"
                r" \['a', 'b'\]: name them with --worker-column and --duration-column"
            ),
        ),
        (
            "rank,replica,seconds\n0,0,1\n0,1,1\n1,1,1\n",
            (),
            "the column of the worker could be rank or replica: name it with --worker-column",
        ),
        ("rank,seconds\n0,1\n0,2\n", (), "there is one worker, '0'"),
        (
            "rank,step,seconds\n0,1,1\n1,2,1\n",
            (),
            "times of all 2 workers are needed in at least 2 steps, and the log has 0",
        ),
        (
            "rank,step,seconds\n0,1,-1\n1,1,1\n",
            (),
            "each duration must be a finite number, not negative",
        ),
        ("", (), "cannot be read"),
    ],
)
def test_a_log_that_does_not_say_enough_gets_a_sentence(tmp_path, content, words, sentence):
    path = tmp_path / "times.csv"
    path.write_text(content)
    done = command(path, *words, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert re.search(sentence, " ".join(done.stderr.split()))
    assert not (tmp_path / "out").exists()


def named_log(times, rest=None, **fields):
    """A log in seconds, whose ranks and steps are numbers from 0 on."""
    steps, n = times.shape
    names = {"workers": [str(rank) for rank in range(n)], "steps": [str(k) for k in range(steps)]}
    return Log(
        "job", seconds=times, tasks=np.ones_like(times), rest=rest, unit="s", **names, **fields
    )


def spells(steps=240, rest=None):
    """Ranks that take 0.2 s; rank 2 takes 0.3 s in steps 40 to 59, and rank 1 in step 7."""
    times = np.full((steps, 4), 0.2)
    times[40:60, 2] = 0.3
    times[7, 1] = 0.3
    return named_log(times, rest)


def test_percentages_are_of_the_whole_step_and_say_so():
    compute = np.tile([0.02, 0.03], (60, 1))
    whole = bench.what_if(named_log(compute, np.full(60, 0.07)), policies="uta")
    data = json.loads(whole.content.files["what-if.json"])
    # B tasks at speeds of 8 / 20 and 8 / 30 take 24 of the 30 ms
    assert data["perfect"] == pytest.approx(0.06)
    assert data["idle"] == pytest.approx(0.05)
    assert (data["whole"], data["rest"]) == ("the runtime", pytest.approx(4.2))
    assert (
        "rank 1 was waited for: last in 100 % of steps, 10 ms of each step of 100 ms (10.0 %)"
        in (whole.content.findings.lower())
    )
    assert whole.remarks == []
    part = bench.what_if(named_log(compute), policies="uta")
    ways = set(part.records["policy"])
    assert {"as it is", "uta", "race", "dispatch", "best fixed split"} < ways
    for way in ways:
        np.testing.assert_allclose(round_times(whole, way), round_times(part, way) + 0.07)
    assert json.loads(part.content.files["what-if.json"])["perfect"] == pytest.approx(0.2)
    assert "of the time without communication" in part.content.findings
    assert "of the runtime" not in part.content.findings
    (remark,) = part.remarks
    assert remark.startswith("Communication is not in the log")


def test_who_when_and_how_much_are_right_in_a_case_by_hand():
    results = bench.what_if(
        spells(rest=np.full(240, 0.05)), policies="uta", without="race,dispatch"
    )
    runtime = 240 * 0.25 + 21 * 0.1
    share = f"{100 * 2.0 / runtime:.1f} %"
    assert results.content.findings.splitlines()[0] == (
        "Rank 2 was waited for: last in 31 % of steps, 8.33 ms of each step of 259 ms"
        f" ({share}), most in steps 40-59."
    )
    table, _ = results.content.tables
    assert [*table.columns] == [
        *("worker", "% of steps last", "when most was lost", "ms of a step lost", "% lost"),
        "mean ms",
    ]
    # in 219 steps all four end together
    assert table.rows[0] == ("2", "31.1", "40-59", "8.3", share.removesuffix(" %"), "208.3")
    assert table.rows[1][:4] == ("1", "23.2", "", "0.4")


def test_ties_are_shared():
    times = np.array([[2.0, 2.0, 1.0], [3.0, 1.0, 1.0], [1.0, 1.0 + 1e-13, 1.0], [0.0, 0.0, 0.0]])
    figures = about_log(log_of(times), 24)
    last = [worker["last"] for worker in figures["waited_for"]]
    assert last == pytest.approx(np.array([0.5 + 1 + 1 / 3 + 1 / 3, 0.5 + 2 / 3, 2 / 3]) / 4)
    assert [worker["lost"] for worker in figures["waited_for"]] == pytest.approx([2 / 6, 0, 0])


@pytest.mark.parametrize(
    ("slow", "text"),
    [
        (range(40, 60), "40-59"),
        ([7], "7"),
        ([*range(20, 30), *range(70, 95)], "20-29, 70-94"),
        (range(100), "all along"),
        (range(0, 100, 2), "all along"),
        (range(9, 100, 20), "9, 29, 49, 69 and others"),
        ([20, 60], "20, 60"),
        ([20, 22, 24, 25, 60], "20-25, 60"),
        ([], ""),
    ],
)
def test_the_steps_in_which_most_was_lost_are_named(slow, text):
    lost = np.zeros(100)
    lost[[*slow]] = 0.3
    assert when(lost, [str(step) for step in range(100)]) == text
    noise = np.random.default_rng(0).uniform(0.9, 1.1, 100)
    assert when(lost * noise, [str(step) for step in range(100)]).count(",") == text.count(",")
    names = [f"epoch 1, step {step}" for step in range(100)]
    if text == "40-59":
        assert when(lost, names) == "epoch 1, step 40 to epoch 1, step 59"


def test_ranges_that_are_there_by_chance_are_not_named():
    rng = np.random.default_rng(0)
    # two workers that are last in turn, by chance
    logs = rng.uniform(0.5, 1.5, (40, 60)) * (rng.random((40, 60)) < 0.5)
    texts = [when(lost, [str(step) for step in range(60)]) for lost in logs]
    assert texts.count("all along") >= 37
    # few steps that hold most are named, in whatever order they are
    hangs = np.where(np.isin(np.arange(200), [20, 90, 150]), 3.0, 0.01)
    assert when(hangs, [str(step) for step in range(200)]) == "20, 90, 150"
    times = np.random.default_rng(0).gamma(400, 0.25 / 400, (60, 3))
    times[40, 1] += 20.0
    assert ", most in step 40." in who(about_log(named_log(times), 24))


def test_several_workers_that_are_waited_for_are_named_and_chance_alone_names_none():
    step = np.arange(240)
    times = np.random.default_rng(0).gamma(400, 0.25 / 400, (240, 8))
    times[:, 6] *= np.where(step // 20 % 2 == 1, 2.5, 1.0)
    times[:, 7] *= np.where((step + 20) // 20 % 2 == 1, 2.5, 1.0)
    sentence = who(about_log(named_log(times), 64))
    assert re.match(r"Rank [67] was waited for: .* and others\. So was rank [67] \(", sentence)
    even = np.random.default_rng(0).gamma(400, 0.25 / 400, (240, 8))
    assert who(about_log(named_log(even), 64)).startswith("No worker stands out: rank ")
    many = np.random.default_rng(0).gamma(400, 0.25 / 400, (60, 500))
    assert who(about_log(named_log(many), 4_000)).startswith("No worker stands out: rank ")
    many[:, [7, 9]] *= 2.0
    sentence = who(about_log(named_log(many), 4_000))
    assert re.match(r"Rank [79] was waited for: .*, all along\. So was rank [79] \(", sentence)
    same = about_log(named_log(np.ones((20, 3))), 24)
    assert who(same) == "Nobody was waited for: in each step all ended together."


def test_a_short_log_of_a_slow_rank_bears_an_interval():
    for seed in range(6):
        times = 0.025 * np.random.default_rng(seed).gamma(400, 1 / 400, (10, 3))
        times[:, 1] *= 2.6
        results = bench.what_if(
            named_log(times), policies="restarting-beta", without="race,dispatch"
        )
        assert results.content.findings.splitlines()[1].startswith("Worth it: ")
    assert "too short to say, since an interval needs 10 steps" in (
        bench.what_if(named_log(times[:9]), policies="uta").content.findings
    )


@pytest.mark.parametrize(("steps", "correlation", "least"), [(10, 0.5, 0.87), (30, 0.8, 0.88)])
def test_intervals_hold_the_mean_of_steps_that_are_alike(steps, correlation, least):
    values = successive_values(np.random.default_rng(1), steps, correlation, 4_000)
    assert coverage(values)[0] > least
    # as if parts were independent they do not
    assert coverage(values, successive=False)[0] < 0.8


def test_a_comparison_over_parts_of_a_log_is_as_wide_as_their_correlation_asks_for():
    rising = np.tile([0.2, 0.2], (100, 1))
    rising[:, 1] = np.linspace(0.2, 0.4, 100)
    results = bench.what_if(named_log(rising), policies="uta", without="dispatch,race")
    (samples,) = results.content.samples.values()
    pair = (samples["runtime"]["best fixed split"], samples["runtime"]["as it is"])
    plain, wide = (Estimate.from_ratios([pair[0]], [pair[1]], kind) for kind in (False, True))
    assert results.compare("best fixed split", "as it is").ratio == wide
    assert wide.mean == plain.mean
    assert wide.high / wide.low > 2 * plain.high / plain.low


def test_a_split_that_is_known_in_hindsight_only_is_called_so_where_no_policy_plays():
    results = bench.what_if(spells(60), policies="uta", without="uta,race,dispatch")
    verdict = results.content.findings.splitlines()[1]
    assert ": best fixed split (in hindsight) would save" in verdict


def test_ways_are_left_out_by_name(tmp_path):
    log = spells(60)
    all_ways = bench.what_if(log, policies="default,uta", out=tmp_path)
    fewer = bench.what_if(log, policies="default,uta", without=["default", "race"], out=tmp_path)
    left = set(all_ways.records["policy"]) - set(fewer.records["policy"])
    assert left == {"distribution-learner", "race"}
    # the folder has what was asked for last
    assert bench.read(tmp_path).table().equals(fewer.table())
    for way in set(fewer.records["policy"]):
        np.testing.assert_array_equal(round_times(fewer, way), round_times(all_ways, way))
    path = tmp_path / "times.csv"
    frame(job()).write_csv(path)
    done = command(path, "--policies", "uta", "--without", "uta,race,dispatch", "--json")
    assert {way["name"] for way in json.loads(done.stdout)["alternatives"]} == {
        "best fixed split",
        "without 2",
    }
    done = command(path, "--policies", "uta", "--without", "dispach")
    assert done.exit_code == 2
    assert re.search(
        r"there is no way to leave out 'dispach'.*dispatch", " ".join(done.stderr.split())
    )


def test_of_one_long_spell_each_part_of_the_log_speaks():
    rng = np.random.default_rng(1)
    times = rng.gamma(400.0, 1 / 400, (120, 6))
    times[:, 3] *= 1.4
    times[30:70, 1] *= 2.5

    def verdict(chosen):
        return bench.what_if(log_of(chosen), policies="restarting-beta").content.findings

    results = bench.what_if(log_of(times), policies="restarting-beta")
    logged = np.split(round_times(results, "as it is"), 10)
    played = np.split(round_times(results, "restarting-beta"), 10)
    least = min(1 - new.sum() / old.sum() for new, old in zip(played, logged, strict=True))
    assert f"at least {100 * least:.1f} % in each of ten parts" in results.content.findings
    # without the second slow worker, nothing is saved outside of the spell
    times[:, 3] /= 1.4
    assert "Nothing follows: " in verdict(times)
    assert "in each of ten parts" not in verdict(times[:20])


def test_a_log_that_may_not_answer_says_so_in_place_of_a_verdict(tmp_path):
    doubt = "its times include the wait for others."
    log = named_log(job(), doubt=doubt)
    results = bench.what_if(log, policies="uta", out=tmp_path)
    assert results.content.findings.splitlines()[0] == f"This log cannot say: {doubt}"
    assert "worth it" not in results.content.findings.lower()
    assert bench.read(tmp_path).content.findings == results.content.findings


@pytest.mark.filterwarnings("error")
def test_times_of_zero_give_no_warnings_and_a_worker_without_time_no_verdict():
    times = job(steps=20)
    for rows, columns in ((3, slice(None)), (3, 1), (slice(5), 1), (slice(None), slice(2))):
        changed = times.copy()
        changed[rows, columns] = 0.0
        if rows == slice(None):
            changed[0] = 1.0
        results = bench.what_if(log_of(changed), policies="restarting-beta,lb-bsp-ema")
        assert np.isfinite(results.table()["mean"].to_numpy()).all()
        cannot_say = "This log cannot say: worker a took no time in 95 % of steps."
        assert (cannot_say in results.content.findings) == (rows == slice(None))
        results.plot("waiting")
        results.compare("race", "as it is")
    times[:, 1] = 0.0
    with pytest.raises(ValueError, match="job: the times of worker b are all 0"):
        bench.what_if(log_of(times), policies="uta")


def test_the_heat_map_has_the_workers_in_the_order_of_the_bars_and_few_cells():
    rng = np.random.default_rng(0)
    times = rng.gamma(400, 0.02 / 400, (1003, 40))
    times[500:600, 17] *= 4.0
    log = named_log(times)
    about = about_log(log, 80)
    heat = heat_frame(log, about)
    workers = heat["worker"].unique(maintain_order=True).to_list()
    worst = sorted(about["waited_for"], key=lambda worker: -worker["lost"])
    assert workers == [*(worker["worker"] for worker in worst[:12]), "the other 28"]
    assert workers[0] == "17"
    assert len(heat) == 13 * 400
    slow = heat.filter(pl.col("worker") == "17", pl.col("relative") > 3)
    assert (int(slow["first"][0]), int(slow["last"][-1])) == pytest.approx((500, 599), abs=3)
    small = named_log(np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]]))
    assert heat_frame(small, about_log(small, 24)).rows() == [
        ("2", "0", "0", 2.0),
        ("2", "1", "1", 1.0),
        ("0", "0", "0", 0.5),
        ("0", "1", "1", 1.0),
        ("1", "0", "0", 1.0),
        ("1", "1", "1", 1.0),
    ]


def test_a_notebook_shows_the_tables_and_the_picture():
    shown = bench.what_if(spells(60), policies="uta", without="dispatch")._repr_html_()
    assert "when most was lost" in shown
    assert '<img src="data:image/png;base64,iVBOR' in shown


def test_what_a_shadow_records_is_read_as_the_times_of_the_job(tmp_path):
    path = tmp_path / "times.csv"
    times = job(steps=40)
    workers = ["gpu0", "gpu1", "gpu, old"]
    # the job is started again after 15 steps; each step is in the file at once
    for part, lines in ((times[:15], 15), (times[15:], 40)):
        with Shadow(tasks=4, record=path, log_every=None) as shadow:
            for step in part.tolist():
                shadow.step(dict(zip(workers, step, strict=True)))
            written = len(path.read_text().splitlines())
        assert written == 1 + 3 * lines
    log = read_log(path)
    places = [log.workers.index(worker) for worker in workers]
    np.testing.assert_array_equal(log.seconds[:, places], times)
    assert (
        "gpu, old was waited for: last in " in bench.what_if(log, policies="uta").content.findings
    )
    path.write_text("a,b\n")
    with pytest.raises(ValueError, match="holds something else"):
        Shadow(record=path)


@pytest.mark.parametrize(
    ("seconds", "sentence"),
    [
        ([0.1, 0.2], "must be a dict with the time of each worker, not"),
        ({}, "must be a dict with the time of each worker, not"),
        ({"a": 0.1}, "make a new Shadow where workers come or go"),
        ({"a": 0.1, "b": 0.2, "c": 0.1}, "make a new Shadow where workers come or go"),
        ({"a": 0.1, "b": float("nan")}, "a time of worker 'b' must be a finite number"),
    ],
)
def test_a_step_that_a_shadow_cannot_take_is_refused_with_the_cure(seconds, sentence):
    with Shadow(log_every=None) as shadow:
        for _ in range(2):
            shadow.step({"a": 0.1, "b": 0.2})
        runtime = shadow.runtime
        with pytest.raises(ValueError, match=sentence):
            shadow.step(seconds)
        assert shadow.runtime == runtime
        shadow.step({"b": 0.2, "a": 0.1})
        assert shadow.runtime > runtime
    if "new Shadow" in sentence:
        with Shadow(log_every=None) as another:
            # its first step shows the workers alone
            another.step(seconds)
            another.step(seconds)
        assert another.runtime > 0.0


def test_rounds_of_a_recorder_in_which_workers_have_different_numbers_of_tasks_add_up(tmp_path):
    path = tmp_path / "times.csv"
    with TraceRecorder(path) as recorder:
        for number in range(1, 13):
            seconds = {"a": (0.5, 0.25, 0.25), "b": (1.5,), "c": (0.1 * number,) * 2}
            tasks = {worker: len(times) for worker, times in seconds.items()}
            recorder.add(RoundRecord(number, tasks, seconds, round_time=3.0))
    log = read_log(path)
    expected = [(1.0, 1.5, 0.2 * number) for number in range(1, 13)]
    np.testing.assert_allclose(log.seconds, expected)
    assert (log.tasks == [3, 1, 2]).all()
    # of B = 24 tasks, 4 are one of the job's 6
    np.testing.assert_allclose(task_times(log, 24)[0], np.array([1 / 3, 1.5, 0.1]) / 4)
