"""Limits of the tasks of a round: no allocation is outside them, none within them is nearer, and a
prior is by name.
"""

import json
from itertools import product

import numpy as np
import pytest
from hypothesis import given, strategies as st

from ata_policies import Allocator, Dispatcher
from ata_policies.allocator.limits import within

TIMES = {"a": 1.0, "b": 2.0, "c": 5.0}


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_no_allocation_within_the_limits_has_fewer_changes_and_an_earlier_end(data, budget, n):
    draw = data.draw
    cuts = sorted(draw(st.lists(st.integers(0, budget), min_size=n - 1, max_size=n - 1)))
    shares = np.diff([0, *cuts, budget])
    mean = np.array(draw(st.lists(st.floats(0.1, 9.0), min_size=n, max_size=n)))
    pairs = [
        sorted(draw(st.lists(st.integers(0, budget), min_size=2, max_size=2))) for _ in range(n)
    ]
    least, most = np.array(pairs).T
    if not least.sum() <= budget <= most.sum():
        return
    found = within(shares, least, most, mean, budget)
    assert found.sum() == budget
    assert ((least <= found) & (found <= most)).all()
    legal = [one for one in product(range(budget + 1), repeat=n) if sum(one) == budget]
    legal = [np.array(one) for one in legal if ((least <= one) & (one <= most)).all()]
    changes = min(np.abs(one - shares).sum() for one in legal)
    assert np.abs(found - shares).sum() == changes
    # tasks were added, one by one where each ends first
    if np.clip(shares, least, most).sum() <= budget:
        nearest = [one for one in legal if np.abs(one - shares).sum() == changes]
        added = [
            np.where(one > np.clip(shares, least, most), one * mean, 0.0).max()
            for one in (found, *nearest)
        ]
        assert added[0] == pytest.approx(min(added))


@pytest.mark.parametrize("start_more", [False, True])
def test_a_policy_learns_within_limits_as_many_rounds_as_it_plays(start_more):
    limits = {"a": (0, 3), "c": (2, 4)}
    allocator = Allocator(
        TIMES,
        8,
        "default" if start_more else "certainty-equivalence",
        start_more=start_more,
        limits=limits,
    )
    for _ in range(12):
        tasks = allocator.allocate()
        assert sum(tasks.values()) >= 8 if start_more else sum(tasks.values()) == 8
        assert tasks["a"] <= 3
        assert 2 <= tasks["c"] <= 4
        ends = sorted(
            (TIMES[who] * (done + 1), who) for who, count in tasks.items() for done in range(count)
        )
        counts = [who for _, who in ends[:8]]
        cancelled = {who: 0.0 for who in tasks if counts.count(who) < tasks[who]}
        allocator.observe({who: [TIMES[who]] * counts.count(who) for who in tasks}, cancelled)
    if not start_more:
        assert tasks == {"a": 3, "b": 3, "c": 2}
    allocator.leave("b")
    with pytest.raises(
        ValueError,
        match="limits give the workers that are there at least 2 and at most 7 tasks",
    ):
        allocator.allocate()
    allocator.join("b")
    assert allocator.allocate()["a"] <= 3


def test_in_dispatch_nobody_starts_more_than_the_most_and_everybody_starts_the_least():
    dispatcher = Dispatcher(TIMES, 6, limits={"a": (0, 2), "c": (1, 1)})
    for _ in range(4):
        started = dict.fromkeys(TIMES, 0)
        now = dict.fromkeys(TIMES, 0.0)
        over = False
        while not over:
            for who in dispatcher.start():
                started[who] += 1
                now[who] += TIMES[who]
            first = min(dispatcher.running, key=now.__getitem__)
            late = max(now[first], *(now[who] - TIMES[who] for who in dispatcher.running))
            now = {who: end if who in dispatcher.running else late for who, end in now.items()}
            over = dispatcher.finished(first, TIMES[first])
        assert started["a"] <= 2
        assert started["c"] == 1


@pytest.mark.parametrize(
    ("limits", "sentence"),
    [
        ({"a": (3, 2)}, r"must be \(least, most\)"),
        ({"a": (0, 9)}, "<= most <= 8"),
        ({"x": (0, 2)}, "limits name worker 'x', and there are"),
        (
            {"a": (0, 2), "b": (0, 2), "c": (0, 3)},
            "at least 0 and at most 7 tasks, and a round has 8",
        ),
        ({"a": (4, 8), "b": (5, 8)}, "at least 9"),
    ],
)
def test_limits_that_cannot_be_are_refused(limits, sentence):
    with pytest.raises(ValueError, match=sentence):
        Allocator(TIMES, 8, limits=limits)


def play(allocator, rounds):
    for _ in range(rounds):
        tasks = allocator.allocate()
        allocator.observe({who: [TIMES.get(who, 1.0)] * count for who, count in tasks.items()})
    return tasks


def test_a_prior_is_what_was_known_of_the_same_names(tmp_path):
    before = Allocator(TIMES, 8, "certainty-equivalence")
    play(before, 5)
    before.allocate()  # a decision that was for others
    file = tmp_path / "state.json"
    file.write_text(json.dumps({"rounds": 5, "allocator": before.state_dict()}))
    for prior in (file, str(file), before.state_dict()):
        after = Allocator(["d", "c", "a"], 8, "certainty-equivalence", prior=prior)
        assert (set(after.workers), sum(after.allocate().values())) == ({"a", "c", "d"}, 8)
        assert after.expected_times().items() >= {"a": 1.0, "c": 5.0}.items()
        assert play(after, 5) == {"a": 4, "c": 0, "d": 4}
    with pytest.raises(ValueError, match="this is no state of Allocator with B = 9"):
        Allocator(["a"], 9, "certainty-equivalence", prior=file)
