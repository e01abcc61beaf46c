import linecache
import sys
import warnings
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest

import ata_gym
import ata_policies
from ata_gym import bench, optimal_allocation, proxy_loss, proxy_optimal
from ata_gym.bench import PolicyFailedWarning
from ata_gym.bench.report.report import LeftFiles
from ata_gym.bench.report.statistics import performance_profile
from ata_gym.bench.runner import progress, study
from ata_gym.changes import Walk
from ata_gym.pools import exponential
from ata_gym.scenarios import Scenario
from ata_policies import AllocationPolicy, Setting, registry

SMALL: dict[str, Any] = {"rounds": 40, "seeds": 3, "jobs": 1}
POOL = exponential([1.0, 2.0, 4.0])


class Fastest(AllocationPolicy):
    def __init__(self, setting: Setting, *, worker: int = 0, seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.worker = worker

    def allocate(self, state):
        return np.tile(
            np.eye(self.setting.n, dtype=np.int64)[self.worker] * self.setting.budget,
            (len(state.round), 1),
        )


CELL = '''
class Mine(Base):
    """Written in a notebook."""

    def allocate(self, state):
        return super().allocate(state)
'''


def in_a_notebook(cell: str = CELL) -> type[AllocationPolicy]:
    """The class of a cell, which belongs to no file; as IPython does, linecache knows the text of
    the cell.
    """
    name = f"<cell {abs(hash(cell))}>"
    linecache.cache[name] = len(cell), None, cell.splitlines(keepends=True), name
    spaces: dict[str, Any] = {"Base": Fastest, "__name__": "__main__"}
    exec(compile(cell, name, "exec"), spaces)
    return spaces["Mine"]


def test_names_classes_and_objects_play_side_by_side(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    named = {"b": Fastest, "c": in_a_notebook(), "d": Fastest(Setting(5, 8), worker=1)}
    results = bench.run(["uta", named["b"], named["c"]], "five-workers", **SMALL)
    assert list(results.table()["policy"].unique(maintain_order=True)) == [
        "uta",
        f"{__name__}:Fastest",
        "Mine",
    ]
    results = bench.run(named, "five-workers", **SMALL)
    runtime = results.table().filter(quantity="runtime").rows_by_key("policy", unique=True)
    assert runtime["b"] == runtime["c"] != runtime["d"]
    unknown: dict[str, Any] = {"Base": Fastest, "__name__": "__main__"}
    exec(CELL, unknown)
    assert not bench.run(unknown["Mine"], "five-workers", **SMALL).failures
    with pytest.raises(
        ValueError,
        match="the source of each policy, and the source of Mine cannot be had",
    ):
        bench.run(unknown["Mine"], "five-workers", out=tmp_path / "out", **SMALL)
    assert not list(tmp_path.iterdir())
    with pytest.raises(ValueError, match="Mine"):
        ata_policies.load("Mine")


@pytest.mark.parametrize(
    ("policies", "scenarios", "more", "message"),
    [
        ([], "five-workers", {}, "name at least one policy"),
        ([3], "five-workers", {}, "a policy is a name, or a class or an object"),
        ({"uta": Fastest}, "five-workers", {}, "uta is the name of another policy"),
        (
            [type("Twin", (Fastest,), {}), type("Twin", (Fastest,), {})],
            "five-workers",
            {},
            "policies are named Twin",
        ),
        (Fastest(Setting(9, 2)), "five-workers", {}, "was made for 9 workers, a budget of 2"),
        ("utah", "five-workers", {}, "utah"),
        ("uta", [], {}, "name at least one scenario"),
        ("uta", ["five-workers", "five-workers"], {}, "several scenarios need names"),
        ("uta", "five-workers", {"jobs": 0}, "jobs"),
        ("uta", "five-workers", {"out": ""}, "its name is empty"),
    ],
)
def test_what_cannot_be_run_is_refused(policies, scenarios, more, message):
    with pytest.raises(ValueError, match=message):
        bench.run(policies, scenarios, **{**SMALL, **more})
    assert registry.registered_source("uta") is None


@pytest.fixture
def unreported(monkeypatch):
    monkeypatch.setattr(study, "leave", lambda *_: LeftFiles())


@pytest.mark.usefixtures("unreported")
def test_the_same_call_goes_on_with_the_policies_that_are_missing(tmp_path):
    run = partial(bench.run, scenario="five-workers", out=tmp_path, **SMALL)
    first = run("uta")
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/*")}
    second = run(["uta", in_a_notebook()])
    assert all(path.stat().st_mtime_ns == when for path, when in before.items())
    assert second.records.filter(policy="uta").equals(first.records)
    assert run(["uta", in_a_notebook()]).table().equals(second.table())
    with pytest.raises(ValueError, match=r"the code of Mine \(Mine\) has changed"):
        run(in_a_notebook(CELL.replace("(state)\n", "(state) + 0\n")))
    assert (tmp_path / "sources" / "Mine.py").read_text() == CELL.strip()
    fast, slow = ({"mine": Fastest(Setting(5, 8), worker=worker)} for worker in (0, 1))
    before = run(fast).records
    assert run(fast).records.equals(before)
    # an object with other hyperparameters is other code
    with pytest.raises(
        ValueError,
        match=r"the code of mine",
    ):
        run(slow)
    assert (run(slow, rerun_changed=True).records["runtime"] > before["runtime"]).all()


@pytest.mark.usefixtures("unreported")
def test_neither_processes_nor_the_folder_change_the_results(tmp_path, monkeypatch):
    names = ["uta", "ata-icml", "Mine"]
    told = set()

    @contextmanager
    def bars(totals):
        assert totals == dict.fromkeys(names, SMALL["rounds"])
        yield lambda *now: told.add(now[:2])

    policies = [*names[:2], in_a_notebook()]
    one = bench.run(policies, "five-workers", **SMALL)
    monkeypatch.setattr(study, "progress_bars", bars)
    two = bench.run(policies, "five-workers", out=tmp_path, **{**SMALL, "jobs": 2})
    assert one.records.equals(two.records)
    assert one.content.page().sections[-2].id == two.content.page().sections[-2].id == "allocations"
    assert {(name, SMALL["rounds"]) for name in names} <= told
    assert max(rounds for _, rounds in told) == SMALL["rounds"]


class Failing(Fastest):
    def allocate(self, state):
        if state.round[0] > 1:
            raise RuntimeError("no idea")
        return super().allocate(state)


@pytest.mark.usefixtures("unreported")
def test_a_policy_that_fails_is_told_and_leaves_the_others_alone(tmp_path):
    with pytest.warns(PolicyFailedWarning, match="Failing failed: .*no idea"):
        results = bench.run(["uta", Failing], "five-workers", out=tmp_path, **SMALL)
    assert list(results.failures) == [f"{__name__}:Failing"]
    assert "no idea" in next(tmp_path.glob("failures/*Failing.txt")).read_text()
    assert results.records["policy"].unique().to_list() == ["uta"]
    assert "no idea" in results._repr_html_()
    with pytest.raises(ValueError, match="Failing"):
        results.compare("uta", "Failing")
    with pytest.warns(PolicyFailedWarning):
        nothing = bench.run(Failing, "five-workers", out=tmp_path / "new", **SMALL)
    with pytest.raises(ValueError, match="no policy has finished"):
        nothing.table()
    # a corrected call is taken
    bench.run(
        "uta",
        "five-workers",
        out=tmp_path / "new",
        **{**SMALL, "rounds": 5},
    )


class FailingAmongMany(Fastest):
    def allocate(self, state):
        if self.setting.n > 5 and state.round[0] > 1:
            raise RuntimeError("too many")
        return super().allocate(state)


class Means(AllocationPolicy):
    """Keeps every rule, and first tries each worker."""

    def allocate(self, state):
        untried = state.belief.untried()
        scores = np.where(untried, 0.0, self.scores(state))
        return ata_gym.allocate(scores, self.setting.budget, state.round_keys(), untried)

    def scores(self, state):
        return np.nan_to_num(state.belief.mean())


class MeansOfAllRows(Means):
    """Learns from the workers of all seeds."""

    def scores(self, state):
        means = super().scores(state)
        return np.broadcast_to(means.mean(axis=0), means.shape)


class RoundedByBatch(Means):
    """Finds equal workers different by a rounding, which follows from the size of the batch."""

    def scores(self, state):
        rounding = 1e-7 * ((len(state.round) + np.arange(self.setting.n)) % 3)
        return np.broadcast_to(1.0 + rounding, (len(state.round), self.setting.n))


class Unseeded(Means):
    """Draws anew whenever it is asked."""

    def scores(self, state):
        return np.random.default_rng().random((len(state.round), self.setting.n))


class Counts(Means):
    """Remembers outside the state how often it was asked."""

    asked = 0

    def scores(self, state):
        self.asked += 1
        return super().scores(state) + 1.0 * (np.arange(self.setting.n) == self.asked % 7)


@pytest.mark.parametrize(
    ("policy", "difference"),
    [
        (MeansOfAllRows, "for a row alone than for it in a batch"),
        (RoundedByBatch, "for a row alone than for it in a batch"),
        (Unseeded, "when it is played again"),
        (Counts, "when it is played again"),
    ],
)
def test_seeds_of_a_policy_that_are_not_independent_are_said(policy, difference):
    twenty = Scenario(exponential(np.arange(1.0, 21.0)), 5)
    with pytest.warns(PolicyFailedWarning, match=difference):
        results = bench.run([policy, "ofta"], twenty, **SMALL)
    (remark,) = (one for one in results.remarks if "ata-gym check" in one)
    assert f"{policy.__name__} decides otherwise {difference}" in remark
    assert "or the rounding of its network depends on the size of the batch" in remark
    assert results.finished
    with warnings.catch_warnings():
        warnings.simplefilter("error", PolicyFailedWarning)
        sound = bench.run([Means, "ofta"], twenty, **SMALL)
    assert not any("ata-gym check" in one for one in sound.remarks)


def test_what_makes_results_of_several_scenarios_doubtful_is_said_once():
    with pytest.warns(PolicyFailedWarning) as caught:
        results = bench.run([Unseeded, "ofta"], ["five-workers", "icml2025-regret"], **SMALL)
    assert len([one for one in caught if "Unseeded decides" in str(one.message)]) == 1
    assert len([one for one in results.remarks if "Unseeded decides" in one]) == 1


@pytest.mark.usefixtures("unreported")
def test_a_scenario_on_which_all_failed_takes_a_corrected_call(tmp_path):
    scenarios = ["five-workers", "icml2025-regret"]
    with pytest.warns(PolicyFailedWarning, match="too many"):
        results = bench.run(FailingAmongMany, scenarios, out=tmp_path, **SMALL)
    assert results.table()["scenario"].unique().to_list() == ["five-workers"]
    bench.run("uta", "icml2025-regret", out=tmp_path / scenarios[1], **{**SMALL, "rounds": 5})


def test_several_scenarios_are_compared_together(tmp_path):
    several = bench.run(
        ["uta", "ofta", "oracle"],
        ["five-workers", "icml2025-regret"],
        price=0.1,
        **SMALL,
    )
    assert several.table()["scenario"].unique(maintain_order=True).to_list() == [
        "five-workers",
        "icml2025-regret",
    ]
    comparison = several.compare("ofta", "uta")
    assert comparison.ratio.high < 1.0
    assert not comparison.tied
    assert comparison.wins.mean == 1.0
    assert "on 2 scenarios" in repr(comparison)
    page = several.report(tmp_path / "page.html").read_text("utf-8")
    assert all(name in page for name in ("five-workers", "icml2025-regret"))
    for what in ("runtime", "worker_time", "profile"):
        assert several.plot(what)._repr_png_().startswith(b"\x89PNG")
    assert several.plot("regret").axes[0].get_title(loc="left").startswith("five-workers")
    with pytest.raises(ValueError, match="picture"):
        several.plot("nothing")
    with pytest.raises(ValueError, match="utah"):
        several.compare("utah", "uta")
    equal = bench.run(["uta", "ofta"], Scenario(exponential([1.0, 1.0]), 2, name="equal"), **SMALL)
    assert "the two are tied" in equal.compare("uta", "ofta").sentence


def test_the_cost_regret_is_that_of_the_expected_cost():
    played = Scenario(POOL, 4, price=0.2, name="exact")
    results = bench.run(["uta", "oracle", Fastest], played, rounds=30, seeds=2, jobs=1)
    everything_to_one = 4 * 1.0 * 1.2 - optimal_allocation(POOL, 4, 0.2).cost
    one = results.records.filter(policy=f"{__name__}:Fastest")
    assert one["cost_regret"].to_numpy() == pytest.approx(
        everything_to_one * one["round"].to_numpy(),
        rel=1e-5,
    )
    assert (results.records.filter(policy="oracle")["cost_regret"] == 0.0).all()
    uta = results.records.filter(policy="uta", seed=0)["cost_regret"].to_numpy()
    assert (np.diff(uta) > 0).all()
    for name in ("changing-load", "icml2025-regret"):
        records = bench.run(["gta", "uta"], name, rounds=3, seeds=1, jobs=1).records
        unknown = {
            policy
            for (policy,), mine in records.group_by("policy")
            if mine["cost_regret"].is_null().all()
        }
        assert unknown == ({"gta", "uta"} if name == "changing-load" else {"gta"})


def test_regrets_count_the_latency():
    latency = exponential([9.0, 2.0, 1.0]).to_data()
    pool = exponential([1.0, 2.0, 3.0]).with_latency(latency)
    played = Scenario(pool, 4, price=0.2, name="late")
    results = bench.run(["ofta", "oracle", Fastest], played, rounds=10, seeds=2, jobs=1)
    one = results.records.filter(policy=f"{__name__}:Fastest")
    # all tasks on worker 0 take 13 on average, with its worker time at the price
    cost = 13.0 * 1.2 - optimal_allocation(pool, 4, 0.2).cost
    rounds = one["round"].to_numpy()
    assert one["cost_regret"].to_numpy() == pytest.approx(cost * rounds, rel=1e-5)
    least = proxy_loss(proxy_optimal(pool, 4), pool.mean(), pool.latency.mean())
    assert one["regret"].to_numpy() == pytest.approx((13.0 - least) * rounds)
    assert (results.records.filter(policy="oracle")["cost_regret"] == 0.0).all()
    assert (results.records.filter(policy="ofta")["regret"] == 0.0).all()


def test_what_an_optimum_that_is_not_proved_may_lack_is_said_beside_the_cost_regret(
    monkeypatch,
    tmp_path,
):
    monkeypatch.setattr("ata_gym.theory.optimal.branch_and_bound.NODES", 20)
    played = Scenario(exponential(np.linspace(1.0, 10.0, 60)), 400, horizon=3, name="wide")
    best = optimal_allocation(played.pool, played.budget)
    assert best.gap > 0.0
    results = bench.run(["uta", "ata"], played, seeds=1, jobs=1, out=tmp_path / "out")
    (remark,) = results.remarks
    assert f"expected cost {best.cost:.6g} a round, which is not proved to be the best" in remark
    assert f"may cost up to {best.gap:.3g} less ({100 * best.gap / best.cost:.2g} %)" in remark
    assert remark in (tmp_path / "out" / "report.html").read_text()
    races = bench.run(["gta"], played, seeds=1, jobs=1)  # which have no cost regret
    proved = bench.run(["uta", "ata"], Scenario(POOL, 4, horizon=3, name="small"), seeds=1, jobs=1)
    assert (races.remarks, proved.remarks) == ([], [])


def test_where_workers_follow_the_load_it_is_said_why_there_is_no_regret(tmp_path):
    out = tmp_path / "out"
    results = bench.run("uta,ofta,dynamic-ofta", "load-warming", rounds=5, seeds=2, jobs=1, out=out)
    (remark,) = results.remarks
    assert remark.startswith("No regret is shown: these workers follow the load")
    assert remark in (out / "report.html").read_text()
    assert results.records["regret"].is_null().all()
    assert results.records["cost_regret"].is_null().all()
    regrets = pl.col("quantity").is_in(["regret", "cost_regret"])
    assert results.table().filter(regrets)["mean"].is_null().all()


def test_a_performance_profile_is_the_share_of_runs_within_a_ratio_of_the_best():
    costs = {
        "a": [np.array([1.0, 2.0]), np.array([3.0, 3.0])],
        "b": [np.array([2.0, 2.0]), np.array([1.0, 6.0])],
    }
    profile = performance_profile(costs)
    first, last = (profile.filter(pl.col("ratio") == end) for end in (1.0, profile["ratio"].max()))
    assert dict(first.select("policy", "share").iter_rows()) == {"a": 0.75, "b": 0.5}
    assert (last["share"] == 1.0).all()
    assert ((profile["low"] <= profile["share"]) & (profile["share"] <= profile["high"])).all()
    assert performance_profile({"a": [np.zeros(1)]})["low"].is_null().all()
    free = performance_profile({"a": [np.array([0.0, 1.0])], "b": [np.array([1.0, 1.0])]})
    assert free["ratio"].max() == pytest.approx(2.0)  # there is no ratio to a cost of 0


def test_the_progress_in_a_notebook_is_gone_at_the_end(monkeypatch):
    shown: list[str] = []
    cell = SimpleNamespace(update=shown.append)
    monkeypatch.setitem(
        sys.modules,
        "IPython.display",
        SimpleNamespace(HTML=str, display=lambda *_, **__: cell),
    )
    monkeypatch.setattr(progress, "Console", lambda **_: SimpleNamespace(is_jupyter=True))
    monkeypatch.setattr(progress, "CELL_EVERY", 0.0)
    with progress.progress_bars({"<b>": 10}) as update:
        update("<b>", 4)
    assert "&lt;b&gt;: 4 of 10" in shown[0]
    assert shown[-1] == ""


def test_results_have_the_lower_bound_of_the_regret_where_one_is_known():
    def findings(scenario):
        return bench.run(["uta"], scenario, rounds=20, seeds=2, jobs=1)._repr_html_()

    known = findings("icml2025-regret")
    assert "<br>Lower bound: R_K &gt;= 50.82 ln K" in known
    assert f"c ln K is {50.82 * np.log(20):.3g} after the last round" in known
    # gamma times, and exponential ones of workers that change
    assert "Lower bound" not in findings("five-workers")
    assert "Lower bound" not in findings(
        Scenario(exponential([1.0, 2.0]), 3, changes=(Walk(0.1, 1.0),))
    )
