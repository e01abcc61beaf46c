"""Workers with names: what is refused, who gets what when workers come, go or die, in rounds and
within one.
"""

import copy
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

import ata_policies
from ata_gym import allocate
from ata_gym.typing import Floats
from ata_policies import AllocationPolicy, Allocator, Dispatcher

ALLOCATION = [
    *(
        "ata:alpha=0.1",
        "thompson:memory=window",
        "restarting-beta",
        "exponentiated-gradient",
        "explore-then-commit",
    ),
    *("distribution-learner", "learned", "lb-bsp-federated", "lb-bsp-linear", "lb-bsp-profiled"),
]
RACE = ["race", "gta", "race-caps", "race-fastest", "race-backup"]
TIMES = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 0.5, "e": 3.0, "f": 8.0}


def times_of(shares: dict[Any, int]) -> dict[Any, list[float]]:
    return {
        name: [TIMES[name] * (1.0 + 0.01 * j) for j in range(tasks)]
        for name, tasks in shares.items()
    }


def played(
    rounds: int = 3,
    workers: Any = ("a", "b", "c"),
    budget: int = 6,
    **more: Any,
) -> Allocator:
    allocator = Allocator(workers, budget, **more)
    for _ in range(rounds):
        allocator.observe(times_of(allocator.allocate()))
    allocator.allocate()
    return allocator


def refused(loop: Allocator | Dispatcher, call: Callable[[Any], object]) -> str:
    before = copy.deepcopy(loop.state_dict())
    with pytest.raises(ValueError) as refusal:  # noqa: PT011 - it is compared as text
        call(loop)
    assert loop.state_dict() == before
    return str(refusal.value)


def wrong(worker: str, results: int, tasks: int) -> str:
    return (
        f"worker {worker!r} has {results} results and was given {tasks} tasks; the round needs 6"
        " results, and has"
    )


def done(worker: str, tasks: int) -> str:
    return f"worker {worker!r} has results of all its {tasks} tasks: none can be cancelled"


REFUSED: list[tuple[Any, dict[str, Any], str]] = [
    ({"a": [math.nan]}, {}, "a time of worker 'a' must be a finite number of at least 0, not nan"),
    (
        {"b": [1.0, -0.5]},
        {},
        "a time of worker 'b' must be a finite number of at least 0, not -0.5",
    ),
    ({"a": [math.inf]}, {}, "a time of worker 'a'"),
    ({"a": ["1.0"]}, {}, "a time of worker 'a' must be a finite number of at least 0, not '1.0'"),
    ({"a": 1.0}, {}, "the times of worker 'a' must be a list of numbers, not 1.0"),
    ({"a": np.array(1.0)}, {}, "the times of worker 'a' must be a list of numbers"),
    ({"z": [1.0]}, {}, "there is no worker 'z'; there are ['a', 'b', 'c']"),
    ({0: [1.0]}, {}, "there is no worker 0"),
    ([1.0], {}, "seconds must be a dict by worker, not [1.0]"),
    ({}, {}, wrong("a", 0, 2) + " 0: say in lost who did not answer"),
    ({}, {"cancelled": {"c": math.nan}}, "a time of worker 'c'"),
    ({}, {"cancelled": {"y": 1.0}}, "there is no worker 'y'"),
    ({}, {"lost": ["x"]}, "there is no worker 'x'"),
    ({}, {"lost": "abc"}, "lost must be a list of workers, not 'abc'"),
    ({}, {"lost": [np.zeros(2)]}, "there is no worker array([0., 0.])"),
    *(
        (
            times_of({"a": 2, "b": 2, "c": 2}),
            {"latency": {"a": 1.0, "b": bad, "c": 0.0}},
            f"the latency of worker 'b' must be a finite number of at least 0, not {text}",
        )
        for bad, text in ((-1.0, "-1.0"), (math.nan, "nan"), (math.inf, "inf"), ("1", "'1'"))
    ),
    (
        times_of({"a": 2, "b": 2, "c": 2}),
        {"latency": [1.0]},
        "latency must be a dict by worker, not [1.0]",
    ),
    (times_of({"a": 2, "b": 2, "c": 2}), {"latency": {"z": 1.0}}, "there is no worker 'z'"),
    (
        times_of({"a": 2, "b": 2, "c": 2}),
        {"latency": {"a": 1.0, "c": 1.0}},
        "worker 'b' has times, and no latency: give the latency of each worker that began a task,"
        " or of none",
    ),
    (
        times_of({"a": 2, "b": 2}),
        {"cancelled": {"c": 1.0}, "latency": {"a": 1.0, "b": 1.0}},
        "worker 'c' has times, and no latency",
    ),
]
COUNTS: list[tuple[bool, dict[str, int], dict[str, float], str]] = [
    (False, {"a": 3, "b": 2, "c": 2}, {}, wrong("a", 3, 2)),
    (False, {"a": 3, "b": 2, "c": 1}, {}, wrong("a", 3, 2)),
    (False, {"a": 2, "b": 1, "c": 2}, {}, wrong("b", 1, 2)),
    (False, {"a": 3, "b": 4, "c": 0}, {"c": 1.0}, wrong("a", 3, 2)),
    (False, {"a": 2, "b": 2, "c": 2}, {"b": 1.0}, done("b", 2)),
    (True, {"a": 4, "b": 2, "c": 1}, {}, wrong("c", 1, 6)),
    (True, {"a": 7}, {}, wrong("a", 7, 6) + " 7"),
    (True, {"a": 3, "b": 2}, {"a": 1.0}, wrong("a", 3, 6)),
    (True, {"b": 6}, {"b": 1.0}, done("b", 6)),
]


@pytest.mark.parametrize(
    ("race", "seconds", "more", "said"),
    [
        *((False, *one) for one in REFUSED),
        *(
            (race, times_of(results), {"cancelled": cut}, said)
            for race, results, cut, said in COUNTS
        ),
    ],
)
def test_what_is_wrong_is_refused_by_the_workers_name_and_changes_nothing(
    race,
    seconds,
    more,
    said,
) -> None:
    allocator = played(start_more=race, policy="gta" if race else "certainty-equivalence", rounds=0)
    assert refused(allocator, lambda one: one.observe(seconds, **more)).startswith(said)
    allocator.observe(times_of({"a": 2, "b": 2, "c": 2}))


def test_a_round_is_allocated_then_observed_once_and_tells_what_was_expected() -> None:
    allocator = Allocator(["a", "b", "c"], 4, policy="certainty-equivalence")
    with pytest.raises(ValueError, match=r"there is no round to observe: call allocate\(\) first"):
        allocator.observe({"a": [1.0]})
    allocator.leave("c")
    shares = allocator.allocate()
    assert (allocator.allocate(), allocator.expected_times()) == (shares, {})
    times = {"a": [1.0, 2.0], "b": [4.0, 4.0]}
    allocator.observe(times)
    with pytest.raises(
        ValueError,
        match=r"call allocate\(\) first, and observe\(\) once after each",
    ):
        allocator.observe(times)
    allocator.allocate()
    assert allocator.expected_times() == {"a": 1.5, "b": 4.0}


def test_a_worker_without_tasks_has_no_latency() -> None:
    allocator = Allocator(["a", "b"], 2, limits={"b": (0, 0)})
    assert allocator.allocate() == {"a": 2, "b": 0}
    said = refused(allocator, lambda one: one.observe({"a": [1.0, 1.0]}, latency={"a": 1, "b": 2}))
    assert said == "worker 'b' has a latency, and was given no tasks: leave it out of latency"
    allocator.observe({"a": [1.0, 1.0]}, latency={"a": 1, "b": 0})


def latency_means(allocator: Allocator) -> Any:
    allocator.allocate()
    latency = allocator._state.latency
    return (latency.totals / latency.counts)[0].tolist()


def test_latencies_are_learned_apart_from_task_times_and_only_where_they_are_known() -> None:
    allocator = Allocator(["a", "b"], 10, policy="certainty-equivalence")
    seconds = {"a": 1.0, "b": 2.0}
    latency = {"a": 9.0, "b": 1.0}

    def observe(latency: dict[str, float] | None) -> None:
        shares = allocator.allocate()
        times = {name: [seconds[name]] * tasks for name, tasks in shares.items()}
        allocator.observe(times, latency=latency)

    observe(latency)
    assert latency_means(allocator) == [9.0, 1.0]
    # 9 + 4 and 1 + 12: without latencies it would be 7 and 3
    assert allocator.allocate() == {"a": 4, "b": 6}
    assert allocator.expected_times() == seconds
    observe(None)  # it is no latency of 0
    assert latency_means(allocator) == [9.0, 1.0]
    observe({"a": 5.0, "b": 1.0})
    assert latency_means(allocator) == [7.0, 1.0]


def test_the_latencies_of_a_warm_up_are_not_learned() -> None:
    allocator = Allocator(["a", "b"], 10, policy="certainty-equivalence", warm_up=1)
    for late in (1000.0, 2.0):
        allocator.observe(times_of(allocator.allocate()), latency={"a": late, "b": late})
    assert latency_means(allocator) == [2.0, 2.0]


def test_tasks_of_who_is_lost_or_leaves_may_be_done_by_others_or_by_nobody() -> None:
    allocator = played(policy="certainty-equivalence", rounds=0)
    shares = allocator.allocate()
    explained = str(allocator.explain())
    allocator.observe({}, lost=["a", "b", "c"])  # a round without any result is given again
    assert (allocator.allocate(), str(allocator.explain())) == (shares, explained)
    allocator.observe({"a": [1.0] * 2, "b": [2.0, 2.0, 2.0, 2.0]}, lost=["c"])
    allocator.allocate()
    assert allocator.explain().evidence.tolist() == [2.0, 4.0, 0.0]
    left = {name: tasks for name, tasks in allocator.allocate().items() if name != "c"}
    allocator.observe(times_of(left), cancelled={"c": 9.0})
    shares = allocator.allocate()
    assert allocator.explain().evidence.tolist() == [2.0 + left["a"], 4.0 + left["b"], 0.0]
    allocator.leave("a")
    allocator.observe(times_of({name: shares[name] for name in ("b", "c")}))
    assert allocator.allocate().keys() == {"b", "c"}


@pytest.mark.parametrize(
    ("name", "race"),
    [*((name, False) for name in ALLOCATION), *((name, True) for name in RACE)],
)
@settings(max_examples=2, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_enough_tasks_are_started_whoever_is_there(
    name: str,
    race: bool,
    data: st.DataObject,
) -> None:
    price = data.draw(st.sampled_from([0.0, 0.2]))
    allocator = Allocator(["a", "b", "c"], 5, name, start_more=race, price=price)
    present = {"a", "b", "c"}
    for _ in range(12):
        for worker in data.draw(st.lists(st.sampled_from(sorted(TIMES)), max_size=2, unique=True)):
            if present != {worker}:
                allocator.leave(worker) if worker in present else allocator.join(worker)
                present ^= {worker}
        shares = allocator.allocate()
        assert shares.keys() == present == set(allocator.workers)
        assert sum(shares.values()) >= 5 if race else sum(shares.values()) == 5
        assert all(0 <= tasks <= 5 for tasks in shares.values())
        ends = sorted(
            (TIMES[name] * (j + 1), name) for name, tasks in shares.items() for j in range(tasks)
        )[:5]
        done = {name: [TIMES[name]] * sum(name == one for _, one in ends) for name in shares}
        short = [name for name, tasks in shares.items() if len(done[name]) < tasks]
        if race:
            dead = []
        else:
            dead = data.draw(st.lists(st.sampled_from(sorted(present)), max_size=1))
        done = {name: times for name, times in done.items() if name not in dead}
        allocator.observe(done, cancelled=dict.fromkeys(short, 0.25), lost=dead)


@pytest.mark.parametrize("name", ["default", "thompson", "restarting-beta", "lb-bsp-ema"])
def test_who_leaves_gets_nothing_and_who_comes_back_is_known(name: str) -> None:
    allocator = played(rounds=30, policy=name)
    assert allocator.allocate()["a"] > 0
    allocator.observe(times_of(allocator.allocate()))
    allocator.leave("a")
    for _ in range(3):
        shares = allocator.allocate()
        assert "a" not in shares
        # the policy shares out all tasks among those who are there
        assert shares["b"] > shares["c"]
        assert allocator.explain().away.tolist() == [True, False, False]
        allocator.observe(times_of(shares))
    allocator.join("a")
    allocator.observe(times_of(allocator.allocate()))
    assert allocator.allocate()["a"] == max(allocator.allocate().values())
    assert allocator.explain().mean[0] == pytest.approx(1.0, rel=0.05)


def test_of_those_without_a_result_in_a_race_only_who_did_not_leave_is_thought_to_be_away() -> None:
    allocator = played(rounds=0, policy="race", start_more=True)
    allocator.leave("a")
    allocator.observe(times_of({"b": 6}))
    allocator.join("a")
    allocator.allocate()
    assert allocator.explain().away.tolist() == [False, False, True]


@pytest.mark.parametrize(
    "name",
    ["default", "thompson", "lb-bsp-ema", "explore-then-commit:tasks=1"],
)
def test_a_new_worker_is_tried_and_the_others_stay_known(name: str) -> None:
    allocator = played(rounds=10, policy=name)
    allocator.observe(times_of(allocator.allocate()))
    known = allocator.explain()
    allocator.join("d")
    assert allocator.workers == allocator.places == ("a", "b", "c", "d")
    assert np.array_equal(allocator.explain().evidence[:3], known.evidence)
    assert allocator.explain().evidence[3] == 0.0
    if "explore" not in name:
        for _ in range(15):
            allocator.observe(times_of(allocator.allocate()))
        assert allocator.allocate()["d"] == max(allocator.allocate().values())


@pytest.mark.parametrize("names", [["a", "b"], [3, 5]])
def test_names_of_an_array_are_those_of_a_list(names: list[Any]) -> None:
    allocator = Allocator(np.array(names), budget=4)
    assert allocator.workers == (*names,)
    assert [type(name) for name in allocator.allocate()] == [type(name) for name in names]


def test_only_who_is_there_can_leave_and_only_others_can_join() -> None:
    allocator = played()
    assert "worker 'a' is there already" in refused(allocator, lambda one: one.join("a"))
    assert "names that are texts or whole numbers, not (1.5,)" in refused(
        allocator,
        lambda one: one.join(1.5),
    )
    for worker in ("a", "b", "c"):
        allocator.leave(worker)
    with pytest.raises(ValueError, match="worker 'a' has left already"):
        allocator.leave("a")
    with pytest.raises(ValueError, match="no worker is there: let one join"):
        allocator.allocate()
    allocator.join("b")
    assert allocator.allocate() == {"b": 6}


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((0, 3), "workers must be a whole number from 1"),
        (([], 3), "workers must be a number, or names"),
        ((["a", "a"], 3), "each worker must have a name of its own"),
        (([("a",)], 3), "names that are texts or whole numbers"),
        (("ab", 3), "workers must be a whole number"),
        ((2, 0), "budget must be a whole number from 1"),
        ((2, 3, "gta"), r"gta plays ata_gym/TaskRace-v0: use Allocator\(..., start_more=True\)"),
        ((2, 3, "dispatch"), r"dispatch plays ata_gym/TaskDispatch-v0: use Dispatcher\(...\)"),
        ((2, 3, "thomson"), "did you mean thompson"),
        ((2, 3, "oracle"), "knows the workers"),
        ((2, 3, "dynamic-ofta"), "needs to know each round beforehand"),
        ((2, 3, "thompson:weight=2"), "does not take weight"),
        ((2, 3, 7), "a policy is named by a text"),
    ],
)
def test_bad_arguments_are_refused(arguments: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        Allocator(*arguments)


class OwnPlan(NamedTuple):
    availability: Floats


class Own(AllocationPolicy):
    def first_plan(self, rows: int) -> OwnPlan:
        return OwnPlan(np.arange(self.setting.n) * np.ones((rows, 1)))

    def allocate(self, state: Any) -> Any:
        return allocate(np.zeros_like(state.belief.totals), self.setting.budget, state.round_keys())


def test_a_policy_that_is_made_already_has_its_workers_and_its_own_plan() -> None:
    policy = Own(ata_policies.Setting(2, 3))
    allocator = Allocator(["a", "b"], 3, policy)
    assert allocator.policy is policy
    with pytest.raises(
        ValueError,
        match="is made for 2 workers and B = 3, not for 3 and 3: give its name",
    ):
        allocator.join("c")
    with pytest.raises(ValueError, match="is made for 2 workers and B = 3, not for 2 and 4"):
        Allocator(2, 4, policy)
    told = allocator.explain()
    assert (told.away.any(), told.tasks, np.isnan(told.mean).all()) == (False, None, True)
    allocator.observe(times_of(allocator.allocate()))
    allocator.leave("a")
    assert allocator.allocate() == {"b": 3}
    # a field of a name that our plans have too
    assert allocator._state.plan.availability.tolist() == [
        [0.0, 1.0],
    ]
    assert allocator.explain().away.tolist() == [True, False]  # the allocator knows that
    allocator.join("a")
    assert allocator.allocate().keys() == {"a", "b"}


def begun(policy: str = "dispatch-gta", budget: int = 3) -> Dispatcher:
    dispatcher = Dispatcher(["a", "b", "c"], budget, policy)
    assert dispatcher.start() == ("a", "b", "c")
    return dispatcher


def test_a_round_ends_with_its_last_result_and_cancels_the_rest() -> None:
    dispatcher = begun()
    assert (dispatcher.missing, dispatcher.running) == (3, ("a", "b", "c"))
    assert not dispatcher.finished("b", 1.0)
    with pytest.raises(ValueError, match=r"worker 'b' is running no task; \['a', 'c'\] are"):
        dispatcher.finished("b", 1.0)
    with pytest.raises(ValueError, match=r"call start\(\) after each result"):
        dispatcher.finished("a", 1.0)
    assert dispatcher.start() == ("b",)
    assert not dispatcher.finished("b", 0.5)
    assert (dispatcher._round.age.tolist(), dispatcher.start()) == ([1.5, 0.0, 1.5], ("b",))
    assert dispatcher.finished("a", 2.0)
    assert dispatcher._round.elapsed.tolist() == [0.0, 0.5, 2.0]
    assert (dispatcher.missing, dispatcher.running) == (3, ())
    assert (dispatcher.start(), dispatcher.start()) == (("a", "b", "c"), ())
    dispatcher.finished("a", 1.0, ages={"c": 0.75})  # as it was measured
    assert dispatcher._round.age.tolist() == [0.0, 1.0, 0.75]
    dispatcher.start()
    dispatcher.finished("b", 3.0)
    dispatcher.start()
    assert dispatcher.finished("b", 1.0)
    assert dispatcher._round.elapsed.tolist() == [3.0, 0.0, 3.75]


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda d: d.finished("z", 1.0), "there is no worker 'z'"),
        (
            lambda d: d.finished("a", math.nan),
            "a time of worker 'a' must be a finite number of at least 0, not nan",
        ),
        (lambda d: d.finished("a", -1.0), "a time of worker 'a'"),
        (lambda d: d.finished("a", "soon"), "a time of worker 'a'"),
        (lambda d: d.finished("a", 1.0, {"b": math.inf}), "a time of worker 'b'"),
        (lambda d: d.finished("a", 1.0, {"a": 1.0}), "worker 'a' has finished its task"),
        (lambda d: d.finished("a", 1.0, {"y": 1.0}), "there is no worker 'y'"),
        (lambda d: d.lost("a", math.nan), "a time of worker 'a'"),
        (lambda d: d.lost("x"), "there is no worker 'x'"),
        (lambda d: d.join("a"), "worker 'a' is there already"),
        (lambda d: d.leave("w"), "there is no worker 'w'"),
    ],
)
def test_what_is_wrong_is_refused_and_changes_nothing(call: Any, said: str) -> None:
    assert said in refused(begun(policy="dispatch"), call)


def test_who_dies_starts_no_other_task_in_the_round() -> None:
    dispatcher = begun()
    dispatcher.lost("a", 0.25)
    assert dispatcher.start() == ()
    dispatcher.finished("b", 1.0)
    assert dispatcher.start() == ("b",)
    dispatcher.lost("b")
    dispatcher.lost("c", 1.5)
    with pytest.raises(ValueError, match="no worker is there that could start"):
        dispatcher.start()
    dispatcher.leave("b")
    dispatcher.join("b")
    assert dispatcher.start() == ("b",)
    dispatcher.finished("b", 1.0)
    dispatcher.start()
    assert dispatcher.finished("b", 1.0)
    assert (dispatcher._round.elapsed.tolist(), dispatcher.start()) == (
        [0.25, 0.0, 1.5],
        ("a", "b", "c"),
    )


@pytest.mark.parametrize("policy", ["dispatch", "dispatch-rest", "dispatch-gta"])
@settings(max_examples=4)
@given(data=st.data())
def test_somebody_always_works_whoever_is_there(policy: str, data: st.DataObject) -> None:
    dispatcher = Dispatcher(
        ["a", "b", "c"],
        budget=4,
        policy=policy,
        price=data.draw(st.sampled_from([0.0, 0.3])),
    )
    present = {"a", "b", "c"}
    for results in range(1, 31):
        for change in data.draw(st.lists(st.sampled_from("abcde"), max_size=1)):
            if present != {change}:
                dispatcher.leave(change) if change in present else dispatcher.join(change)
                present ^= {change}
        started = dispatcher.start()
        assert set(started) <= set(dispatcher.running) <= present == set(dispatcher.workers)
        worker = data.draw(st.sampled_from(dispatcher.running))
        assert dispatcher.finished(worker, data.draw(st.floats(0.1, 5.0))) == (results % 4 == 0)
        assert dispatcher.missing == 4 - results % 4


def test_who_leaves_is_not_relied_on_and_who_comes_back_is_known() -> None:
    dispatcher = Dispatcher(["fast", "slow"], budget=4, price=1.0)
    mean = {"fast": 1.0, "slow": 10.0}

    def play_round() -> set[str]:
        ends = dict[Any, float]()
        used = set()
        now = 0.0
        over = False
        while not over:
            started = dispatcher.start()
            used |= {*map(str, started)}
            ends |= {name: now + mean[str(name)] for name in started}
            first = min(ends, key=lambda name: ends[name])
            now = ends.pop(first)
            over = dispatcher.finished(first, mean[str(first)])
        return used

    for _ in range(12):
        play_round()
    assert play_round() == {"fast"}
    dispatcher.leave("fast")
    assert play_round() == {"slow"}
    dispatcher.join("fast")
    assert play_round() == {"fast"}
