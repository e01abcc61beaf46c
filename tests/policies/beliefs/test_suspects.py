import numpy as np
import pytest

from ata_gym.typing import Floats
from ata_policies.beliefs.distributions.arrays import ROW, SLOT
from ata_policies.beliefs.distributions.bins import DistributionBelief

MEANS = np.array([1.0, 2.0, 3.0, *[10.0] * 7])
REST = np.ones(6)  # the factors of those after the first four


def after(
    belief: DistributionBelief,
    factors: Floats,
    seed: int = 0,
    cv: float = 0.2,
) -> DistributionBelief:
    """The belief after a round in which the first four workers do two tasks each, if their
    factor is above 0.

    Their times are so many times longer. The other six do two tasks where the first does.
    """
    factors = np.append(factors, REST * (factors[0] > 0.0))
    rng = np.random.default_rng(seed)
    busy = np.flatnonzero(factors)
    worker = np.repeat(busy, 2)[None]
    time = (MEANS * factors)[worker] * rng.gamma(1.0 / cv**2, cv**2, worker.shape)
    return belief.observe(worker, time, np.zeros((1, 10)))


@pytest.fixture
def known() -> DistributionBelief:
    belief = DistributionBelief.empty(1, 10)
    belief.row[:, ROW.gains : ROW.spread] = -1e9  # the longest memory stays in force
    for k in range(30):
        belief = after(belief, np.ones(4), seed=k)
    assert not belief.suspects().any()
    return belief


def idle(belief: DistributionBelief, rounds: int) -> DistributionBelief:
    for k in range(rounds):
        belief = after(belief, np.array([0.0, 0.0, 0.0, 1.0]), seed=100 + k)
    return belief


@pytest.mark.parametrize("factor", [8.0, 1 / 8])
def test_one_overwhelming_round_is_believed_at_once(
    known: DistributionBelief,
    factor: float,
) -> None:
    hit = after(known, np.array([1.0, factor, 1.0, 1.0]))
    assert (np.flatnonzero(hit.suspects()).tolist(), hit.alarmed().tolist()) == ([1], [True])
    np.testing.assert_allclose(hit.mean()[0, :4], MEANS[:4] * [1, factor, 1, 1], rtol=0.25)
    assert hit.counts[0, 1] == pytest.approx(2.0)  # it rests on this round alone
    assert not idle(hit, 1).alarmed().any()


def test_a_single_long_task_of_several_is_no_change(known: DistributionBelief) -> None:
    seen = known.observe(np.array([[1, 1, 1]]), np.array([[2.0, 2.1, 60.0]]), np.zeros((1, 10)))
    assert not seen.suspects().any()


def test_times_that_vary_much_need_more(known: DistributionBelief) -> None:
    del known
    belief = DistributionBelief.empty(1, 10)
    for k in range(30):
        belief = after(belief, np.ones(4), seed=k, cv=1.5)
    assert not after(belief, np.array([1.0, 8.0, 1.0, 1.0]), seed=1, cv=1.5).suspects().any()


def test_a_worker_that_hung_once_is_back_with_the_first_probe(known: DistributionBelief) -> None:
    hit = after(known, np.array([1.0, 50.0, 1.0, 1.0]))
    waiting = idle(hit, 200)
    due = [bool(idle(hit, k).probes()[0, 1]) for k in range(0, 200, 5)]
    first = 5 * due.index(True)
    # a probe might take 50 rounds' time, so it comes later than the probe of one a little slower
    assert first > 5
    assert waiting.counts[0, 1] == hit.counts[0, 1]  # what is known of a suspect does not fade
    back = after(waiting, np.array([0.0, 1.0, 0.0, 1.0]), seed=7)
    assert not back.suspects().any()
    # the round that hung does not count
    assert back.counts[0, 1] == pytest.approx(
        known.counts[0, 1] + 2.0,
    )
    assert back.row[0, ROW.events] == 0.0


def test_the_fastest_of_those_that_failed_together_is_probed(known: DistributionBelief) -> None:
    hit = after(known, np.array([6.0, 6.0, 6.0, 1.0]))
    assert hit.suspects()[0, :4].tolist() == [True, True, True, False]
    # a round is hardly longer by it
    assert hit.probes()[0, :4].tolist() == [
        True,
        False,
        False,
        False,
    ]
    as_usual = after(hit, np.array([1.0, 0.0, 0.0, 1.0]), seed=3)
    assert as_usual.suspects()[0, :4].tolist() == [False, True, True, False]
    # the others are due at once
    assert as_usual.probes()[0, :4].tolist() == [
        False,
        True,
        True,
        False,
    ]
    still_slow = after(hit, np.array([6.0, 0.0, 0.0, 1.0]), seed=3)
    assert still_slow.row[0, ROW.events] == 3.0
    again = next(k for k in range(60) if idle(still_slow, k).probes().any())
    assert (again, idle(still_slow, again).probes()[0].sum()) == (1, 1)


def test_a_change_that_lasts_becomes_usual(known: DistributionBelief) -> None:
    belief = known
    for k in range(5):
        belief = after(belief, np.array([1.0, 4.0, 1.0, 1.0]), seed=k)
    assert not belief.suspects().any()
    assert belief.tracks[0, 1, SLOT.restart] > 30
    assert (belief.counts[0, 1], belief.mean()[0, 1]) == (
        pytest.approx(8.0, abs=3.0),
        pytest.approx(8.0, rel=0.2),
    )


def test_everybody_begins_anew_where_most_change_at_once(known: DistributionBelief) -> None:
    assert after(known, np.full(4, 10.0)).since.tolist() == [0.0]
    assert after(known, np.array([10.0, 1.0, 1.0, 1.0])).since.tolist() == [31.0]


def test_what_was_kept_aside_comes_back_as_it_was(known: DistributionBelief) -> None:
    """Scaled down and up again, the moments and the counts in bins are those from before, and two
    results more.
    """
    hit = after(known, np.array([1.0, 9.0, 1.0, 1.0]))
    assert hit.tracks[0, 1, SLOT.stretch] == pytest.approx(9.0, rel=0.3)
    assert hit.tracks[0, 1, SLOT.kept_share] == pytest.approx(2.0 / 60.0)
    failed = idle(hit, 4)
    slow = after(failed, np.array([0.0, 9.0, 0.0, 1.0]), seed=5)  # so the change was real
    back = after(slow, np.array([0.0, 1.0, 0.0, 1.0]), seed=6)
    plain = after(known, np.array([0.0, 1.0, 0.0, 1.0]), seed=6)
    for name in ("counts", "totals", "deviations", "anchor"):
        np.testing.assert_allclose(getattr(back, name)[0, 1], getattr(plain, name)[0, 1], rtol=1e-9)
    np.testing.assert_allclose(back.bins[0, 1], plain.bins[0, 1], rtol=1e-9, atol=1e-12)
