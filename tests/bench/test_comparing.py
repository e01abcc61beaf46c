"""Policies are compared by any of their names, and a script that does not guard what it runs is
told so first.
"""

import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ata_gym import allocate, bench
from ata_policies import AllocationPolicy, DispatchPolicy, Setting
from tests.bench.test_benchmark import Fastest, in_a_notebook
from tests.waiting import PATIENCE, without_progress

SMALL: dict[str, Any] = {"rounds": 30, "seeds": 4, "jobs": 1}
HERE = Fastest.__module__


class Other(Fastest):
    """Gives all tasks to the second worker, or another one."""

    def __init__(self, setting: Setting, *, worker: int = 1, seed: int = 0) -> None:
        super().__init__(setting, worker=worker, seed=seed)


@pytest.fixture(scope="module")
def played() -> Any:
    """A class of a file, one of a notebook, and an object with a name of its own."""
    mine = in_a_notebook()
    made = Other(Setting(5, 8), worker=3)
    results = bench.run({"third": made, "Mine": mine, "file": Fastest}, "five-workers", **SMALL)
    named = bench.run(
        ["uta", "ofta", Fastest, f"{__name__}:Other:worker=2"],
        "five-workers",
        **SMALL,
    )
    return results, named, mine, made


def test_each_of_its_names_means_the_policy(played):
    results, named, mine, made = played
    assert pickle.loads(pickle.dumps(results)).compare("Mine", "file") == results.compare(
        "Mine",
        "file",
    )
    for one, name in (
        (mine, "Mine"),
        ("Mine", "Mine"),
        ("__main__:Mine", "Mine"),
        (made, "third"),
        (Fastest, "file"),
        (f"{HERE}:Fastest", "file"),
        ("file", "file"),
    ):
        if name != "third":
            other = "third"
        else:
            other = "file"
        assert results.compare(one, other) == results.compare(name, other)
        assert results.compare(one, other).sentence.startswith(f"{name} compared with {other}: ")
    for one in (Fastest, f"{HERE}:Fastest", "Fastest"):
        assert named.compare(one, "uta").sentence.startswith(f"{HERE}:Fastest compared with uta: ")
    for one in (Other, "Other:worker=2", f"{__name__}:Other:worker=2"):
        assert named.compare("ofta", one).sentence.startswith(
            f"ofta compared with {__name__}:Other:worker=2: ",
        )


def test_a_name_that_means_none_or_several_is_refused(played):
    results, *_ = played
    for one, said in (
        ("Fast", "there is no finished policy 'Fast'"),
        (Other, "'Other'"),
        ("no.module:Mine", "Mine"),
    ):
        with pytest.raises(ValueError, match=said):
            results.compare(one, "third")
    both = bench.run(
        [f"{HERE}:Fastest", f"{HERE}:Fastest:worker=2", "uta"],
        "five-workers",
        **SMALL,
    )
    with pytest.raises(
        ValueError,
        match=r"Fastest was played as .*Fastest and as .*Fastest:worker=2: say which",
    ):
        both.compare(Fastest, "uta")
    assert both.compare("Fastest", "uta").sentence.startswith(f"{HERE}:Fastest compared with")


def test_the_sentence_tells_the_share_of_paired_wins(played):
    _, named, *_ = played
    compared = named.compare("uta", "ofta")
    records = named.records
    last = records.filter(round=SMALL["rounds"])
    uta, ofta = (last.filter(policy=one).sort("seed")["runtime"] for one in ("uta", "ofta"))
    share = (uta < ofta).mean()
    assert compared.wins.mean == share
    assert f"It costs less in {100 * share:.0f} % of the paired runs (" in compared.sentence
    assert (
        "less and more are by geometric means of the ratios, not by ratios of the means."
        in compared.sentence
    )
    assert "probability" not in compared.sentence


SCRIPT = '''
from ata_gym import allocate, bench
from ata_policies import AllocationPolicy


class Own(AllocationPolicy):
    """Deals by the total times."""

    def allocate(self, state):
        return allocate(state.belief.totals, self.setting.budget, state.round_keys())


size = {{"rounds": 9, "seeds": 2}}
policies = ["uta", "certainty-equivalence", Own]
{guard}results = bench.run(policies, "five-workers", **size, {more})
{guard}print(results.compare(Own, "uta"))
{guard}print(results.compare("__main__:Own", "certainty-equivalence").sentence)
'''


def run_script(folder: Path, guard: str, more: str) -> subprocess.CompletedProcess[str]:
    script = folder / "mine.py"
    script.write_text(SCRIPT.format(guard=guard, more=more), "utf-8")
    options: dict[str, Any] = {"capture_output": True, "text": True, "timeout": PATIENCE}
    return subprocess.run([sys.executable, script], check=False, cwd=folder, **options)


def test_a_script_that_guards_nothing_is_told_the_cure_in_the_first_line(tmp_path):
    done = run_script(tmp_path, "", "jobs=2, out='results'")
    assert done.returncode == 1
    first, *rest = without_progress(done.stderr).splitlines()
    assert first.startswith(
        'put what the script runs under if __name__ == "__main__": or give jobs=1',
    )
    assert rest[0].startswith("Traceback")
    assert rest[-1].endswith(first)
    assert "bootstrapping" not in done.stderr
    assert not done.stdout
    assert not [*tmp_path.rglob("*.parquet")]


def test_a_script_with_its_guard_compares_its_own_class(tmp_path):
    done = run_script(tmp_path, 'if __name__ == "__main__": ', "jobs=1")
    assert done.returncode == 0, done.stderr
    assert [line.partition(":")[0] for line in done.stdout.splitlines()] == [
        "Own compared with uta",
        "Own compared with certainty-equivalence",
    ]


class FailsFor(AllocationPolicy):
    """Fails from round 61 on: in the rows with an odd key, in all, in a batch alone, or by an
    illegal action.
    """

    def __init__(self, setting: Setting, *, how: str = "slow", seed: int = 0) -> None:
        super().__init__(setting, seed=seed)
        self.how = how

    def allocate(self, state):
        tasks = np.tile(
            np.eye(self.setting.n, dtype=np.int64)[0] * self.setting.budget,
            (len(state.round), 1),
        )
        if state.round[0] < 61:
            return tasks
        if self.how == "exit":
            sys.exit(3)
        if self.how == "together" and len(state.round) > 1:
            raise RuntimeError("cannot do so many")
        if self.how == "slow" and (state.key % 2 == 1).any():
            raise RuntimeError("too slow")
        if self.how == "more":
            tasks[1 % len(tasks), 0] += 1
        return tasks


class FailsInDispatch(DispatchPolicy):
    """Starts two tasks at once in the third row, when two results are missing in round 4."""

    def act(self, state, observation):
        started = np.ones_like(observation["started"])
        started[2:3] += (state.round[2:3, None] == 4) & (observation["missing"][2:3] == 2)
        return started, state


def test_a_failure_within_a_round_of_dispatch_names_it_too():
    with pytest.warns(
        bench.PolicyFailedWarning,
        match=r"failed: in round 4, row 2 \(seed 2\): ValueError: worker 0 of",
    ):
        bench.run(f"{__name__}:FailsInDispatch", "five-workers", rounds=9, seeds=3, jobs=1)


@pytest.mark.parametrize(
    ("how", "said"),
    [
        (
            "more",
            (
                r"in round 61, row 1 \(seed 41\): ValueError: worker 0 of row 1 must have at most 8"
                r" tasks"
            ),
        ),
        (
            "together",
            (
                r"in round 61, in no row alone but in 6 rows together \(seeds 40 to 45\):"
                r" RuntimeError: cannot do so"
            ),
        ),
        (
            "exit",
            r"in round 61, row 0 \(seed 40\) and 5 more of 6 rows: the policy called sys.exit\(3\)",
        ),
    ],
)
def test_a_failure_names_round_row_and_seed(how, said):
    with pytest.warns(bench.PolicyFailedWarning, match=rf"FailsFor:how={how} failed: {said}"):
        bench.run(
            ["uta", f"{__name__}:FailsFor:how={how}"],
            "five-workers",
            rounds=90,
            seeds=6,
            seed=40,
            jobs=1,
        )


def test_a_failure_names_the_rows_that_fail_alone():
    def failure(seed: int, seeds: int) -> str:
        size = {"rounds": 90, "seeds": seeds, "seed": seed, "jobs": 1}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", bench.PolicyFailedWarning)
            failures = bench.run(f"{__name__}:FailsFor", "five-workers", **size).failures
        return "".join(str(failure.error) for failure in failures.values())

    alone = [seed for seed in range(40, 46) if failure(seed, 1)]
    assert 1 < len(alone) < 6
    first = alone[0]
    assert failure(first, 1) == f"in round 61, row 0 (seed {first}): RuntimeError: too slow"
    more = f"row {first - 40} (seed {first}) and {len(alone) - 1} more of 6 rows"
    assert failure(40, 6) == f"in round 61, {more}: RuntimeError: too slow"


TRAINED = "learned was trained on workers drawn from the seeds 0 to 999,999, and seeds of this run"


@pytest.mark.parametrize(
    ("scenario", "seed", "policies", "remarked"),
    [
        ("drawn-6-v1", 0, "learned,uta", True),
        ("drawn-walk-v1", 999_999, "learned", True),
        ("drawn-6-v1", 1_000_000, "learned", False),
        ("drawn-6-v1", 2_000_000, "learned", False),
        ("drawn-6-v1", 0, "uta", False),
        ("five-workers", 0, "learned", False),
    ],
)
def test_seeds_of_the_training_are_remarked(tmp_path, scenario, seed, policies, remarked):
    results = bench.run(policies, scenario, rounds=3, seeds=2, seed=seed, jobs=1)
    assert [remark.partition(" (")[0] for remark in results.remarks] == [TRAINED] * remarked
    page = results.report(tmp_path / "page.html").read_text("utf-8")
    assert (TRAINED in page) == (TRAINED in results._repr_html_()) == remarked


def test_a_remark_on_one_of_several_scenarios_is_on_their_page(tmp_path):
    results = bench.run(
        "learned",
        ["five-workers", "drawn-6-v1"],
        rounds=3,
        seeds=2,
        jobs=1,
        out=tmp_path / "out",
    )
    assert [remark.partition(" (")[0] for remark in results.remarks] == [TRAINED]
    assert (
        results.report(tmp_path / "page.html")
        .read_text("utf-8")
        .count(f'<p class="remark">{TRAINED}')
        == 1
    )


class ByTheMeans(AllocationPolicy):
    """Deals by the true means."""

    def allocate(self, state):
        means = np.tile(self.setting.pool.mean(), (len(state.round), 1))
        return allocate(means, self.setting.budget, state.round_keys())


class Declared(ByTheMeans):
    """Says so."""

    knows = "the means"


def test_who_reads_the_pool_is_not_played_as_one_that_learns():
    said = (
        f"^{__name__}:ByTheMeans fails in the first round: UndeclaredError: ByTheMeans says"
        " knows = "
    )
    for play in (
        lambda one: bench.run(["uta", one], "five-workers", **SMALL),
        lambda one: bench.run({"mine": one(Setting(5, 8))}, "five-workers", **SMALL),
        lambda one: bench.sweep(["uta", one], "five-workers", "budget", [4, 8], **SMALL),
    ):
        with pytest.raises(
            ValueError,
            match="fails in the first round: UndeclaredError: ByTheMeans says knows = ",
        ):
            play(ByTheMeans)
    with pytest.raises(ValueError, match=said):
        bench.run(ByTheMeans, "five-workers", **SMALL)
    declared = bench.run(["uta", "certainty-equivalence", Declared], "five-workers", **SMALL)
    assert {line.name: line.kind for line in declared.content.page().series} == {
        "uta": "baseline",
        "certainty-equivalence": "learner",
        f"{__name__}:Declared": "oracle",
    }
