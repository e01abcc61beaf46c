from pathlib import Path
from typing import Any

import pytest

import ata_gym
from ata_gym import bench
from ata_gym.bench import PolicyFailedWarning
from ata_gym.bench.studies import benchmark
from ata_gym.scenarios.published import with_workers
from ata_policies import Setting
from tests.bench.test_benchmark import Failing, Fastest

SMALL: dict[str, Any] = {"rounds": 30, "seeds": 2, "jobs": 1}


def work(folder: Path) -> dict[tuple[str, str], bytes]:
    kept = "results/*", "allocations/*", "plots/*", "config.json", "*.csv", "*.md"
    return {(kind, file.name): file.read_bytes() for kind in kept for file in folder.glob(kind)}


@pytest.mark.parametrize(
    ("parameter", "value", "alone"),
    [
        ("budget", 3, {"budget": 3}),
        ("price", 0.5, {"price": 0.5}),
        ("rounds", 7, {"rounds": 7}),
        ("workers", 45, {"scenario": "icml2025-mixed-n45"}),
        ("alpha", 2.5, {"policies": "ofta,ata-icml:alpha=2.5,uta"}),
    ],
)
def test_the_folder_of_a_value_is_what_bench_alone_leaves(tmp_path, parameter, value, alone):
    call: dict[str, Any] = {
        "policies": "ofta,ata-icml,uta",
        "scenario": "icml2025-mixed-n15",
        **SMALL,
    }
    swept = {name: of for name, of in call.items() if name != parameter}
    made = bench.sweep(**swept, parameter=parameter, values=[value], out=tmp_path / "sweep")
    results = bench.run(**{**call, **alone}, out=tmp_path / "alone")
    assert work(tmp_path / "sweep" / f"{parameter}-{value}") == work(tmp_path / "alone")
    assert len(work(tmp_path / "alone")) > 10
    if parameter == "price":
        quantity = "cost/ofta"
    else:
        quantity = "runtime/ofta"
    ratios = results.table().filter(quantity=quantity).select("mean", "low", "high")
    assert made.table().select("mean", "low", "high").equals(ratios)
    assert made.table().select("policy", "value").rows() == [
        (name, value) for name in ("ofta", "ata-icml", "uta")
    ]


def test_a_killed_sweep_goes_on_to_the_same_bytes(run, tmp_path, monkeypatch):
    line = (
        "bench --scenario five-workers --rounds 90 --seeds 2 --policies ofta,thompson --jobs 1"
        " --save-every 0"
    )
    told = run(f"{line} --sweep budget=2,4,8 --out whole").stdout
    played = []
    play = benchmark.CostRun.play

    def stopped(self, most):
        played.append(most)
        if len(played) > 120:
            raise KeyboardInterrupt
        play(self, most)

    monkeypatch.setattr(benchmark.CostRun, "play", stopped)
    run(f"{line} --sweep budget=2,4,8 --out out", code=130)
    monkeypatch.setattr(benchmark.CostRun, "play", play)
    assert run(f"{line} --sweep budget=2,4,8 --out out").stdout == told.replace("whole/", "out/")
    assert "sweep.svg" in (tmp_path / "out" / "ata-gym.sha256").read_text("latin-1")
    for name in ("", "budget-2", "budget-4", "budget-8"):
        assert work(tmp_path / "out" / name) == work(tmp_path / "whole" / name) != {}


def test_processes_do_not_change_a_sweep_and_classes_take_their_hyperparameters():
    sweep: dict[str, Any] = {"scenario": "five-workers", "parameter": "worker", "values": [0, 4]}
    means = bench.sweep({"mine": Fastest}, **sweep, **SMALL).table()["mean"].to_list()
    assert (
        bench.sweep([Fastest, "gta"], **sweep, **{**SMALL, "jobs": 2})
        .table()["mean"]
        .to_list()[::2]
        == means
    )
    one = bench.sweep("uta", "five-workers", "budget", [3, 5], rounds=5, seeds=1, jobs=1)
    assert one.table()["low"].is_null().all()
    texts = bench.sweep(
        "thompson",
        "five-workers",
        "memory",
        ["everything", "window"],
        rounds=5,
        seeds=1,
        jobs=1,
    )
    assert "memory<br>window" in texts._repr_html_()
    assert texts.plot()._repr_png_()


def test_a_policy_that_fails_leaves_its_places_empty(tmp_path):
    with pytest.warns(PolicyFailedWarning, match="Failing"):
        made = bench.sweep(["uta", Failing], "five-workers", "budget", [3, 5], **SMALL)
    assert made.table()["policy"].to_list() == ["uta", "uta"]
    with pytest.warns(PolicyFailedWarning):
        nothing = bench.sweep(Failing, "five-workers", "budget", [3, 5], out=tmp_path, **SMALL)
    assert not nothing.finished
    name = f"{Failing.__module__}:Failing"
    assert list(nothing.failures) == [f"{name} at budget = {value}" for value in (3, 5)]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (
            "--sweep budget",
            "--sweep must be a parameter with its values, such as budget=5,10,20, not 'budget'",
        ),
        ("--sweep budget=0,5", "budget must be a whole number from 1"),
        (
            "--sweep seeds=1,2",
            (
                "none of uta, ata has a hyperparameter 'seeds'; what can be swept: alpha,"
                " availability, "
            ),
        ),
        ("--sweep workers=4 --scenario icml2025-mixed-n15", "must be a multiple of 5, not 4"),
        (
            "--sweep workers=4 --scenario five-workers",
            "follow no formula of their number: take one of icml2025-cifar100,",
        ),
        ("--sweep budget=4 --budget 3", "budget is what is swept: leave its other value, 3, out"),
        ("--sweep budget=4 --loss-curve loss.csv", "--loss-curve does not go with --sweep"),
    ],
)
def test_bad_input_is_refused_at_the_door(refused, tmp_path, words, sentence):
    assert sentence in refused(
        f"bench --scenario icml2025-regret --policies uta,ata --rounds 5 --out out {words}",
    )
    assert not list(tmp_path.iterdir())


def test_workers_follow_the_formula_of_a_published_scenario_alone():
    for name in (
        "icml2025-cifar100",
        "icml2025-regret",
        "icml2025-quadratic-log-n17",
        "icml2025-mixed-n150",
    ):
        assert with_workers(
            ata_gym.scenario(name),
            ata_gym.scenario(name).pool.n,
        ) == ata_gym.scenario(name)
    assert with_workers(ata_gym.scenario("icml2025-regret"), 30).published.preprint.alpha == 60.0


class PerRound(Fastest):
    """Fastest, with a hyperparameter that has the name of a parameter of experiments."""

    def __init__(self, setting: Setting, *, seed: int = 0, rounds: int = 1) -> None:
        super().__init__(setting, seed=seed)
        self.rounds = rounds


def test_a_parameter_of_the_experiment_is_no_hyperparameter_of_that_name():
    """And a policy that has the name of such a parameter takes a swept hyperparameter."""
    swept = bench.sweep({"mine": PerRound}, "five-workers", "rounds", [2, 4], seeds=1, jobs=1)
    assert swept.table()["policy"].to_list() == ["mine"] * 2
    assert swept.records["policy"].unique().to_list() == ["mine"]
    size = {"rounds": 3, "seeds": 1, "jobs": 1}
    named = bench.sweep({"price": Fastest}, "five-workers", "worker", [0, 1], **size)
    runtimes = named.table()["mean"].to_list()
    assert runtimes[0] < runtimes[1]  # all tasks to worker 0, and to worker 1, which is slower
