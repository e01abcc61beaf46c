"""The compiled allocation by scores: the B smallest multiples of the scores, and the rules for scores of 0.

Worker i's tasks are the multiples s_i, 2 s_i, 3 s_i, ... of its score, and the B smallest of all are handed out. They
are found by a search for a level with almost B multiples below it; the last few follow in order. Of many workers only
those are looked at whose scores are below a bound that a sample gives.
"""

import math

import numpy as np

from ata_gym.typing import Floats, Ints, Mask
from ata_gym.utils.compiled import helper, kernel

_FAR = 2.0**200  # a scaled score that no level reaches
_TINY = 2.0**-100  # scores above this and below its inverse need no scaling
_LAST = 3
"""Multiples too many or too few that are handed out in order, rather than found by a search for the exact level."""
_INFINITE = 0x7FF0000000000000  # the bits of infinity
_MANY = 16384  # workers from which on those with low scores are picked out first
_SAMPLE = 4096  # workers that the bound of their scores follows from


@helper()
def _multiples(s: Floats, inverse: Floats, level: float, held: Floats) -> None:
    for i in range(len(s)):
        m = np.floor(level * inverse[i])
        m = m - 1.0 if m * s[i] > level else m  # the product decides, the quotient only guesses
        held[i] = m + 1.0 if (m + 1.0) * s[i] <= level else m


@helper("reassoc", "nsz")
def _sum(x: Floats) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@helper()
def _largest(held: Floats, s: Floats, work: Floats) -> float:
    for i in range(len(s)):
        work[i] = held[i] * s[i]
    bits = work.view(np.int64)
    best = np.int64(0)
    for i in range(len(bits)):
        best = max(best, bits[i])
    bits[0] = best
    return float(work[0])


@helper()
def _next(held: Floats, s: Floats, work: Floats) -> float:
    for i in range(len(s)):
        work[i] = (held[i] + 1.0) * s[i]
    bits = work.view(np.int64)
    best = bits[0]
    for i in range(len(bits)):
        best = min(best, bits[i])
    bits[0] = best
    return float(work[0])


@helper()
def _search(n: int, s: Floats, inverse: Floats, held: Floats, work: Floats, budget: int) -> int:
    """Hold the multiples up to a level, and return how many are missing to B: few, or those that follow are equal.

    Fewer than 0 are missing where there are more than B. The search is by interpolation and bisection; every probe
    moves an end of the interval to a multiple, so it ends. The arrays are filled up to whole vectors beyond n.
    """
    total = _sum(inverse)
    low, low_count, low_next = 0.0, 0.0, 0.0
    high, high_count = (budget + n) / total * (1.0 + 1e-9), float(budget + n)
    level = (budget + min(0.5 * n, 0.8 * budget)) / total
    while True:
        _multiples(s, inverse, level, held)
        count = _sum(held)
        if abs(budget - count) <= _LAST:
            return budget - int(count)
        width = high - low
        if count < budget:
            low, low_count, low_next = level, count, _next(held, s, work)
        else:
            high, high_count = np.nextafter(_largest(held, s, work), 0.0), count
        if low_next > high:
            _multiples(s, inverse, low, held)
            return budget - int(low_count)
        slow = high - low > 0.5 * width
        share = 0.5 if slow else (budget - low_count + 0.5) / (high_count - low_count + 1.0)
        level = min(max(low + (high - low) * share, low_next), high)


@helper()
def _complete(s: Floats, held: Floats, work: Floats, missing: int) -> None:
    """Hold the multiples that are missing in order, of equal ones the lowest index first, or let go of the last."""
    bits = work.view(np.int64)
    n = len(s)
    while missing > _LAST:  # equal multiples; each pass hands out one at least, as no place beyond n has the least
        following = _next(held, s, work)
        for i in range(n):
            if (held[i] + 1.0) * s[i] == following and missing > 0:
                held[i] += 1.0
                missing -= 1
    step = 1.0 if missing > 0 else 0.0
    for i in range(n):
        work[i] = (held[i] + step) * s[i]
    while missing > 0:  # one fewer in each pass
        least, i = bits[0], 0
        for k in range(n):
            least = min(least, bits[k])
        while bits[i] != least:  # it is one of them
            i += 1
        held[i] += 1.0
        work[i] = (held[i] + 1.0) * s[i]
        missing -= 1
    while missing < 0:  # one more in each pass
        most, i = bits[0], n - 1
        for k in range(n):
            most = max(most, bits[k])
        while bits[i] != most:  # it is one of them
            i -= 1
        held[i] -= 1.0
        work[i] = held[i] * s[i]
        missing += 1


@helper()
def _share_out(scores: Floats, smallest: float, budget: int, out: Ints) -> None:
    """Add to ``out`` the B smallest elements of the multiset {m s_i : m >= 1}; of equal ones the lowest index first.

    ``smallest`` is the smallest score above 0, or about the size of all; those of 0 or infinity get nothing. One score
    is above 0 and finite at least, so that some multiple comes before those of the places beyond n.
    """
    n = len(scores)
    # scaled by a power of two, in two halves, so that no multiple that matters overflows or is subnormal
    _, exponent = math.frexp(smallest)
    half = math.ldexp(1.0, -(exponent // 2))
    rest = math.ldexp(1.0, -(exponent - exponent // 2))
    cap = math.ldexp(_FAR, min(exponent, 0)) if exponent < 0 else math.inf  # scaling up must not overflow
    scratch = np.empty((4, (n + 31) // 32 * 32))  # whole vectors
    s, inverse, held, work = scratch[0], scratch[1], scratch[2], scratch[3]
    for i in range(n):
        s[i] = min(scores[i], cap) * half * rest
    s[n:] = 0.0
    for i in range(len(s)):
        s[i] = s[i] if 0.0 < s[i] < math.inf else _FAR
        inverse[i] = 1.0 / s[i]
    missing = _search(n, s, inverse, held, work, budget)
    _complete(s, held, work, missing)
    for i in range(n):
        out[i] += np.int64(held[i])


@helper()
def _pick_out(scores: Floats, budget: int, near: Ints) -> int:
    """List the workers that may get one of ``budget`` tasks, in order, and return how many; 0 where a sample misled.

    Where B scores are at most a bound, so are the B smallest multiples, and of workers at the bound the first B will
    do. The bound is a quantile of a sample.
    """
    n = len(scores)
    sample = scores[: n // _SAMPLE * _SAMPLE : n // _SAMPLE].copy().view(np.int64)
    expected = budget * _SAMPLE / n
    place = expected + 4.0 * math.sqrt(expected) + 4.0
    low, high = 0, _INFINITE
    while low < high:  # bisection over the bits, whose order is that of the scores
        middle = low + (high - low) // 2
        count = 0
        for k in range(_SAMPLE):
            count += sample[k] <= middle
        if count > place:
            high = middle
        else:
            low = middle + 1
    sample[0] = low
    bound = sample.view(np.float64)[0]
    size = 0
    for i in range(n):
        near[size] = i  # no branch, since nothing predicts it
        size += scores[i] <= bound
    if size > 2 * budget:
        listed, size, equal = size, 0, 0
        for k in range(listed):
            i = near[k]
            near[size] = i
            size += (scores[i] < bound) | (equal < budget)
            equal += scores[i] == bound
    return size if size >= budget and bound < math.inf else 0


@helper()
def _smallest(scores: Floats, work: Ints) -> float:
    bits = scores.view(np.uint64)
    least = np.uint64(_INFINITE - 1)
    for i in range(len(scores)):  # by what is one less than their bits, so that 0 comes last; integer minima vectorise
        least = min(least, bits[i] - np.uint64(1))
    work.view(np.uint64)[0] = least + np.uint64(1)
    return float(work.view(np.float64)[0])


@helper()
def _choose(members: Ints, size: int, chosen: int, draws: Floats) -> None:
    """Bring a random subset of ``chosen`` of the first ``size`` members to the front; with no draws, the first."""
    if len(draws) > 0:
        for k in range(chosen):
            other = k + np.int64(draws[k] * (size - k))
            members[k], members[other] = members[other], members[k]


@helper()
def _gather(scores: Floats, untried: Mask, wanted: bool, members: Ints) -> None:
    """List the workers with score 0 that were (or were not) tried; no branch, since nothing predicts it."""
    size = 0
    for i in range(len(scores)):
        members[size] = i
        size += (scores[i] == 0.0) & (untried[i] == wanted)


@kernel("(n),(),(n),(k)->(n)")
def allocate_kernel(scores: Floats, budget: Ints, untried: Mask, draws: Floats, out: Ints) -> None:
    """Allocate as ``ata_gym.allocate`` does, without checks; workers with a score of infinity get nothing.

    So nothing is handed out where every score is infinite.
    """
    n = len(scores)
    left = budget[0]
    zeros, usual, never, smallest = 0, 0, 0, math.inf
    for i in range(n):
        zeros += scores[i] == 0.0
        usual += (scores[i] > _TINY) & (scores[i] < 1.0 / _TINY)
    if zeros < n:
        smallest = 1.0 if zeros + usual == n else _smallest(scores, out)
    picked = _pick_out(scores, left, out) if zeros == 0 and n > _MANY and left <= n // 4 else 0
    out[picked:] = 0
    if zeros > 0:
        for i in range(n):
            never += (scores[i] == 0.0) & untried[i]
        members = np.empty(zeros + 1, np.int64)  # with a place to spare
        if never > 0:
            _gather(scores, untried, True, members)
            chosen = min(left, never)
            _choose(members, never, chosen if chosen < never else 0, draws)
            for k in range(chosen):
                out[members[k]] = 1
            left -= chosen
        tried = zeros - never
        if left > 0 and (tried > 0 or smallest == math.inf):  # evenly over the tried ones, or over all if none was
            if tried > 0:
                _gather(scores, untried, False, members)
            size = tried if tried > 0 else never
            each, chosen = left // size, left % size
            _choose(members, size, chosen, draws)
            for k in range(chosen):
                out[members[k]] += 1
            if each > 0:
                for k in range(size):
                    out[members[k]] += each
            left = 0
    if left > 0 and smallest < math.inf:
        some, tasks = scores, out
        if picked > 0:
            some, tasks = np.empty(picked), np.zeros(picked, np.int64)
            for k in range(picked):
                some[k] = scores[out[k]]
        _share_out(some, smallest, left, tasks)
        for k in range(picked - 1, -1, -1):  # backwards, as no worker's place is before that of its number
            i = out[k]
            out[k] = 0
            out[i] = tasks[k]
