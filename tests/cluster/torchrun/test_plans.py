"""Ranks that come and go: those that have committed the same rounds decide alike, whatever rounds
they have begun besides.
"""

from types import SimpleNamespace

import pytest
from hypothesis import given, strategies as st

pytest.importorskip("torch")

from ata_gym.cluster.torchrun.plans import Plans
from ata_gym.cluster.torchrun.ranks.ranks import Member
from ata_policies import Allocator

SPEEDS = {"a": 1.0, "b": 2.0, "c": 4.0, "d": 3.0}

members = st.dictionaries(
    st.sampled_from(sorted(SPEEDS)),
    st.builds(Member, st.integers(0, 2), st.booleans()),
    min_size=1,
).filter(lambda there: not all(member.leaves for member in there.values()))


def plans_of(name):
    ranks = SimpleNamespace(elastic=True, members={}, names=(name,))
    return Plans(ranks, lambda names: Allocator(names, 6, "default", warm_up=1), 100)


def begin(plans, rounds, there):
    plans._ranks.members = there
    plans._ranks.names = tuple(sorted(there))
    tasks = plans.begin(rounds, lambda: False).tolist()
    return dict(zip(plans._ranks.names, tasks, strict=True))


def learn(plans, tasks):
    plans.allocator.observe(
        {name: [SPEEDS[name]] * count for name, count in tasks.items() if count}
    )
    plans.since_change += 1


@given(st.lists(st.tuples(st.lists(members, max_size=2), members), min_size=1, max_size=6))
def test_rounds_that_do_not_count_leave_no_trace(rounds):
    steady = plans_of("a")
    tries_more = plans_of("b")
    for number, (attempts, there) in enumerate(rounds):
        for other in attempts:
            begin(tries_more, number, other)
            tries_more.restore()
        tasks = begin(steady, number, there)
        assert begin(tries_more, number, there) == tasks
        assert sum(tasks.values()) == 6
        assert not any(tasks[name] for name, member in there.items() if member.leaves)
        for plans in (steady, tries_more):
            learn(plans, tasks)
        # One of them is planned ahead, as where the others were slower.
        steady.make_next()
        assert steady.state_for_another() == tries_more.state_for_another()


@given(members, members)
def test_a_rank_that_is_behind_goes_on_as_the_others_do(first, second):
    steady = plans_of("a")
    for number in range(3):
        learn(steady, begin(steady, number, first))
    returned = plans_of("d")
    returned.load_of_another(steady.state_for_another())
    assert begin(returned, 3, second) == begin(steady, 3, second)
    assert returned.since_change == steady.since_change == (0 if first != second else 3) or (
        first == second and returned.since_change > 0
    )
    assert returned.state_for_another() == steady.state_for_another()
