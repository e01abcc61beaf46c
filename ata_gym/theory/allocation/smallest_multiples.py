"""The compiled allocation by scores: the B smallest multiples of the scores.

The tasks of worker i are the multiples s_i, 2 s_i, 3 s_i, ... of its score, and the B smallest of
all are handed out. They are found by a search for a level with almost B multiples below it; the
last few follow in order. Of many workers, only workers with scores below a bound are considered;
the bound comes from a sample. Scores of 0 have rules of their own.
"""

import math

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper, kernel

_UNREACHED_SCORE = 2.0**200  # a scaled score that no level reaches
_TINY_SCORE = 2.0**-100  # scores above this and below its inverse need no scaling
_LARGEST_MISS = 3
"""The search stops at so many multiples too many or too few; the rest is done in order."""
_INFINITE_BITS = 0x7FF0000000000000  # the bits of infinity
_MANY_WORKERS = 16384  # workers from which on the workers with low scores are picked out first
_SAMPLE_SIZE = 4096  # workers whose scores give the bound


@helper()
def _multiples(s: Floats, inverse: Floats, level: float, held: Floats) -> None:
    """Store in ``held`` the number of multiples m s_i <= level of each score."""
    for i in range(len(s)):
        m = np.floor(level * inverse[i])
        # The quotient only guesses m; the products decide, so that rounding has no effect.
        if m * s[i] > level:
            m = m - 1.0
        if (m + 1.0) * s[i] <= level:
            held[i] = m + 1.0
        else:
            held[i] = m


@helper("reassoc", "nsz")
def _sum(x: Floats) -> float:
    """The sum of an array, in any order, so that it is compiled to vector instructions."""
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@helper()
def _least(x: Floats) -> np.float64:
    """The least element above 0, or infinity; no element is below 0.

    The bits of such floats have the order of the floats, and minima of integers vectorise. One is
    subtracted from the bits, so that 0 wraps to the largest number.
    """
    one = np.uint64(1)
    least = np.uint64(_INFINITE_BITS) - one
    for i in range(len(x)):
        least = min(least, np.float64(x[i]).view(np.uint64) - one)
    return np.uint64(least + one).view(np.float64)


@helper()
def _greatest(x: Floats) -> np.float64:
    """The greatest element; none is below 0."""
    greatest = np.int64(0)
    for i in range(len(x)):
        greatest = max(greatest, np.float64(x[i]).view(np.int64))
    return np.int64(greatest).view(np.float64)


@helper()
def _multiply(held: Floats, step: float, s: Floats, work: Floats) -> None:
    """Store in ``work`` the multiple that is ``step`` after the last one held, of each score."""
    for i in range(len(s)):
        work[i] = (held[i] + step) * s[i]


@helper()
def _search(n: int, s: Floats, inverse: Floats, held: Floats, work: Floats, budget: int) -> int:
    """Hold the multiples up to a level, and return how many are missing to B.

    Few are missing, or the multiples that follow are equal. The number is negative where more than
    B are held. The search is by interpolation and bisection; every probe moves an end of the
    interval to a multiple, so it ends. The arrays are filled up to whole vectors beyond n.
    """
    # A level L has between L total - n and L total multiples below it: this bounds it from above.
    total = _sum(inverse)
    low = 0.0
    low_count = 0.0
    low_next = 0.0
    high = (budget + n) / total * (1.0 + 1e-9)
    high_count = float(budget + n)
    level = (budget + min(0.5 * n, 0.8 * budget)) / total
    while True:
        _multiples(s, inverse, level, held)
        count = _sum(held)
        if abs(budget - count) <= _LARGEST_MISS:
            return budget - int(count)
        width = high - low
        if count < budget:
            low = level
            low_count = count
            _multiply(held, 1.0, s, work)
            low_next = _least(work)
        else:
            _multiply(held, 0.0, s, work)
            high = np.nextafter(_greatest(work), 0.0)
            high_count = count
        # No multiple is between the ends: the next ones are equal, and only some of them fit.
        if low_next > high:
            _multiples(s, inverse, low, held)
            return budget - int(low_count)
        # Bisection where the last probe did not halve the interval, else interpolation.
        slow = high - low > 0.5 * width
        if slow:
            share = 0.5
        else:
            share = (budget - low_count + 0.5) / (high_count - low_count + 1.0)
        level = min(max(low + (high - low) * share, low_next), high)


@helper()
def _complete(s: Floats, held: Floats, work: Floats, missing: int) -> None:
    """Hold the ``missing`` multiples in order, or drop the last ones where it is negative.

    Of equal multiples the lowest index comes first.
    """
    n = len(s)
    # The next multiples are equal. Each pass holds at least one, as no place beyond n has the
    # least.
    while missing > _LARGEST_MISS:
        _multiply(held, 1.0, s, work)
        following = _least(work)
        for i in range(n):
            if work[i] == following and missing > 0:
                held[i] += 1.0
                missing -= 1
    if missing > 0:
        step = 1.0
    else:
        step = 0.0
    _multiply(held, step, s, work)
    # One multiple more in each pass: the next of each worker is in ``work``.
    while missing > 0:
        smallest = _least(work)
        i = 0
        while work[i] != smallest:
            i += 1
        held[i] += 1.0
        work[i] = (held[i] + 1.0) * s[i]
        missing -= 1
    # One multiple fewer in each pass: the last of each worker is in ``work``.
    while missing < 0:
        largest = _greatest(work)
        i = n - 1
        while work[i] != largest:
            i -= 1
        held[i] -= 1.0
        work[i] = held[i] * s[i]
        missing += 1


@helper()
def _share_out(scores: Floats, smallest: float, budget: int, out: Ints) -> None:
    """Add to ``out`` the B smallest elements of the multiset {m s_i : m >= 1}.

    Of equal elements the lowest index comes first. ``smallest`` is the smallest score above 0, or
    about the size of all; scores of 0 or infinity get nothing. At least one score is above 0 and
    finite, so that some multiple comes before the multiples of the places beyond n.
    """
    n = len(scores)
    # Scores are scaled by a power of two, so that no multiple that matters overflows or is
    # subnormal; in two factors, since one alone could overflow.
    _, exponent = math.frexp(smallest)
    first_factor = math.ldexp(1.0, -(exponent // 2))
    second_factor = math.ldexp(1.0, -(exponent - exponent // 2))
    # Scaling up must not overflow.
    if exponent < 0:
        cap = math.ldexp(_UNREACHED_SCORE, min(exponent, 0))
    else:
        cap = math.inf
    # Rows of whole vectors: n rounded up to a multiple of 32.
    scratch = np.empty((4, (n + 31) // 32 * 32))
    s = scratch[0]
    inverse = scratch[1]
    held = scratch[2]
    work = scratch[3]
    for i in range(n):
        s[i] = min(scores[i], cap) * first_factor * second_factor
    s[n:] = 0.0
    for i in range(len(s)):
        if not (0.0 < s[i] < math.inf):
            s[i] = _UNREACHED_SCORE
        inverse[i] = 1.0 / s[i]
    missing = _search(n, s, inverse, held, work, budget)
    _complete(s, held, work, missing)
    for i in range(n):
        out[i] += np.int64(held[i])


@helper()
def _pick_out(scores: Floats, budget: int, near: Ints) -> int:
    """List the workers that may get one of ``budget`` tasks, in order, and return how many.

    Where B scores are at most a bound, so are the B smallest multiples, and of workers at the bound
    the first B are enough. The bound is a quantile of a sample. The result is 0 where the sample
    gave a bound that is too low.
    """
    n = len(scores)
    # Every (n // _SAMPLE_SIZE)-th score, as bits.
    sample = np.empty(_SAMPLE_SIZE, np.int64)
    for k in range(_SAMPLE_SIZE):
        sample[k] = np.float64(scores[k * (n // _SAMPLE_SIZE)]).view(np.int64)
    # About so many of the sample are among the B smallest scores; the margin is four standard
    # deviations.
    expected = budget * _SAMPLE_SIZE / n
    place = expected + 4.0 * math.sqrt(expected) + 4.0
    low = 0
    high = _INFINITE_BITS
    # Bisection over the bits, which have the order of the scores.
    while low < high:
        middle = low + (high - low) // 2
        count = 0
        for k in range(_SAMPLE_SIZE):
            count += sample[k] <= middle
        if count > place:
            high = middle
        else:
            low = middle + 1
    bound = np.int64(low).view(np.float64)
    size = 0
    # Every worker is written and the place moves on only for low scores: no branch, since its
    # prediction would fail often.
    for i in range(n):
        near[size] = i
        size += scores[i] <= bound
    # Many scores equal the bound: keep the first B of them.
    if size > 2 * budget:
        candidates = size
        size = 0
        equal = 0
        for k in range(candidates):
            i = near[k]
            near[size] = i
            size += (scores[i] < bound) | (equal < budget)
            equal += scores[i] == bound
    if size >= budget and bound < math.inf:
        return size
    return 0


@helper()
def choose(members: Ints, size: int, chosen: int, draws: Floats) -> None:
    """Move a random subset of ``chosen`` of the first ``size`` members to the front.

    With no draws, the members stay in their order.
    """
    if len(draws) > 0:
        for k in range(chosen):
            position = k + np.int64(draws[k] * (size - k))
            members[k], members[position] = members[position], members[k]


@helper()
def _gather(scores: Floats, untried: Mask, is_untried: bool, members: Ints) -> None:
    """List the workers with score 0 whose ``untried`` equals ``is_untried``."""
    size = 0
    # No branch, since its prediction would fail often.
    for i in range(len(scores)):
        members[size] = i
        size += (scores[i] == 0.0) & (untried[i] == is_untried)


@kernel("(n),(),(n),(k)->(n)")
def allocate_kernel(scores: Floats, budget: Ints, untried: Mask, draws: Floats, out: Ints) -> None:
    """Allocate as ``ata_gym.allocate`` does, without checks.

    Workers with a score of infinity get nothing, so nothing is handed out where every score is
    infinite.

    Args:
        scores: Estimated task times, shape (n,).
        budget: Tasks B to hand out.
        untried: Workers that were never tried, shape (n,).
        draws: Uniform numbers for random choices, at least min(n, B), or none.
        out: The tasks of each worker, shape (n,).
    """
    n = len(scores)
    remaining = budget[0]
    zero_count = 0
    usual_count = 0
    untried_count = 0
    smallest = math.inf
    for i in range(n):
        zero_count += scores[i] == 0.0
        usual_count += (scores[i] > _TINY_SCORE) & (scores[i] < 1.0 / _TINY_SCORE)
    if zero_count < n:
        # Scores of a usual size need no scaling: any number of that size is good enough.
        if zero_count + usual_count == n:
            smallest = 1.0
        else:
            smallest = _least(scores)
    if zero_count == 0 and n > _MANY_WORKERS and remaining <= n // 4:
        picked = _pick_out(scores, remaining, out)
    else:
        picked = 0
    # The first ``picked`` places of ``out`` hold indices of workers until the end.
    out[picked:] = 0
    if zero_count > 0:
        for i in range(n):
            untried_count += (scores[i] == 0.0) & untried[i]
        # ``_gather`` writes one place beyond the last member.
        members = np.empty(zero_count + 1, np.int64)
        if untried_count > 0:
            _gather(scores, untried, True, members)
            chosen = min(remaining, untried_count)
            choose(members, untried_count, chosen if chosen < untried_count else 0, draws)
            for k in range(chosen):
                out[members[k]] = 1
            remaining -= chosen
        tried = zero_count - untried_count
        # Evenly over the tried workers of score 0. If there are none and no finite score is above
        # 0, evenly over the untried workers.
        if remaining > 0 and (tried > 0 or smallest == math.inf):
            if tried > 0:
                _gather(scores, untried, False, members)
            if tried > 0:
                size = tried
            else:
                size = untried_count
            equal_share = remaining // size
            chosen = remaining % size
            choose(members, size, chosen, draws)
            for k in range(chosen):
                out[members[k]] += 1
            if equal_share > 0:
                for k in range(size):
                    out[members[k]] += equal_share
            remaining = 0
    if remaining > 0 and smallest < math.inf:
        candidate_scores = scores
        tasks = out
        if picked > 0:
            candidate_scores = np.empty(picked)
            tasks = np.zeros(picked, np.int64)
            for k in range(picked):
                candidate_scores[k] = scores[out[k]]
        _share_out(candidate_scores, smallest, remaining, tasks)
        # From the last to the first: a worker's index i is at least its place k in the list, so no
        # index that is still needed is overwritten.
        for k in range(picked - 1, -1, -1):
            i = out[k]
            out[k] = 0
            out[i] = tasks[k]
