"""What the theorems of ATA promise for a pool, as numbers: the factor, the phase without knowledge, and the regret."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, ndtr

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.allocation.proxy_loss import allocate_scores, proxy_loss, proxy_optimal
from ata_gym.typing import Floats
from ata_gym.utils.validation import non_negative, whole_number


class Version(NamedTuple):
    """What the versions of the paper differ in."""

    factor: float  # what multiplies alpha or eta in a confidence bound
    centred: bool  # whether these bound the psi1 norms of X - mean, and not of X


VERSIONS = {"preprint": Version(4 * math.e, centred=False), "icml": Version(2.0, centred=True)}
"""The versions by name: the preprint with every published figure, and the ICML poster."""

COUNTEREXAMPLE = (
    "ata-gym bench --scenario counterexample-preprint --policies oracle,ofta,ata-icml --out results/counterexample"
)
"""The command that plays a pool for which the preprint's factor does not hold."""

_BERNSTEIN = 2.0  # |mean of K times - mu| is below 2 ||X - mu|| (sqrt(L / K) + L / K) but for a chance of 2 exp(-L)
_STEPS = 64  # to a fixed point, each of which at least halves the error
_PLAYED = 1000  # a phase of up to so many rounds is played, in at most ten times as many
_MOST_TASKS = 1e290  # needed by a worker; so that no number of rounds overflows
_NORMAL = 1e4  # variance from which a binomial number counts as normal
_SAME = 1e-12  # losses that differ by so small a part are the same


def checked_version(version: str) -> Version:
    """The version of a name; ValueError if there is none."""
    if version not in VERSIONS:
        raise ValueError(f"version must be {' or '.join(map(repr, VERSIONS))}, not {version!r}")
    return VERSIONS[version]


class UniformPhase(NamedTuple):
    """How long ATA has scores of 0, where task times are at their means; from then on it prefers the fast workers."""

    all_zero: int
    """The round before the first with a score above 0; until then all workers get equal shares."""
    some_zero: int
    """The last round in which some score is 0; workers of such a score share all tasks."""


def uniform_phase(means: Floats, budget: int, width: Floats | float) -> UniformPhase:
    """The rounds of ATA in which scores are 0, for mean task times (n,).

    The score of worker i after K_i tasks, in round k, is (mu_i - c_i f)+ with f = sqrt(L / K_i) + L / K_i, L =
    ln(2 k^2), and c_i the ``width``, which is 4 e alpha or 2 alpha, for ATA-Empirical 4 e eta mu_i or 2 eta mu_i
    (Algorithms 1 and 2). It is 0 as long as K_i <= L g_i, where g_i = 4 / (sqrt(1 + 4 mu_i / c_i) - 1)^2, and before
    the first task. Workers of score 0 get all tasks, so some are 0 until B (k - 1) = sum (floor(L g_i) + 1).

    Equal shares are whole tasks, and who gets one more is drawn, so that the first score above 0 is a matter of
    chance: ``all_zero`` is about the median. A phase of up to 1,000 rounds is played instead, with one draw of the
    shares, since one round can give workers of score 0 far more than they need.

    >>> from ata_gym import scenario
    >>> uniform_phase(scenario("icml2025-cifar100").pool.mean(), 23, 4 * math.e * 5916)  # of 750,000 rounds
    UniformPhase(all_zero=23835, some_zero=2644440)
    """
    with np.errstate(divide="ignore", over="ignore"):
        tasks = np.minimum(4 / _excess(width / means) ** 2, _MOST_TASKS)
    last = 10**300
    for _ in range(_STEPS):
        last = math.ceil(float((np.floor(_level(last) * tasks) + 1.0).sum()) / budget)
    if last <= _PLAYED:
        return _played(means, budget, width)
    return UniformPhase(min(_first_above(tasks, budget, last), last), last)


def _level(k: int) -> float:
    return math.log(2) + 2 * math.log(k)


def _first_above(tasks: Floats, budget: int, last: int) -> int:
    """The last round, at most ``last``, before which it is likely that no worker has had more than L times ``tasks``.

    Untried workers come first. Then each gets floor(B / n) tasks in a round, and one more with a chance of p = (B mod
    n) / n.
    """

    def likely(k: int) -> bool:
        each, share = budget // tasks.size, budget % tasks.size / tasks.size
        rounds, tried = float(k - 1), 1.0
        if each == 0:
            tried = min(rounds * share, 1.0)
            rounds = max(math.floor(rounds - 1 / share), 0.0)
        spare = np.floor(_level(k) * tasks) - max(each * rounds, 1.0)
        stays = np.where(spare < 0, 0.0, _at_most(spare, rounds, share))
        return bool(np.log(np.maximum(1.0 - tried + tried * stays, np.finfo(float).tiny)).sum() >= -math.log(2))

    low, high = 1, last
    while low < high:  # halved each time
        middle = (low + high + 1) // 2
        low, high = (middle, high) if likely(middle) else (low, middle - 1)
    return low


def _at_most(most: Floats, trials: float, chance: float) -> Floats:
    """P(X <= most), as ``most``, for a binomial X."""
    variance = trials * chance * (1.0 - chance)
    if variance > _NORMAL:
        return np.asarray(ndtr((most + 0.5 - trials * chance) / math.sqrt(variance)))
    inside = np.minimum(most, trials - 1.0)
    within = betaincc(np.maximum(inside, 0.0) + 1.0, np.maximum(trials - inside, 1.0), chance)
    return np.where(most >= trials, 1.0, within)


def _played(means: Floats, budget: int, width: Floats | float) -> UniformPhase:
    seen, every, some = np.zeros(means.size), 0, 0
    for k in range(1, 10 * _PLAYED):
        with np.errstate(divide="ignore", invalid="ignore"):
            level = _level(k) / seen
            scores = np.where(seen > 0, np.maximum(means - width * (np.sqrt(level) + level), 0.0), 0.0)
        if scores.all():
            if k > 2 * some + budget:  # as L grows, a score may fall to 0 again
                break
        else:
            some = k
        if every == k - 1 and not scores.any():
            every = k
        seen += allocate_scores(scores, budget, np.asarray(k, np.uint64), seen == 0)
    return UniformPhase(every, some)


def _excess(ratio: Floats) -> Floats:  # sqrt(1 + 4 / ratio) - 1, without loss of digits; infinite at 0
    return np.asarray(4 / (np.sqrt(ratio * (ratio + 4)) + ratio))


@dataclass(frozen=True)
class Guarantee:
    """What is promised of ATA on a pool; times are in the pool's unit."""

    version: str
    empirical: bool
    constant: float
    """The alpha that ATA plays with, or the eta of ATA-Empirical."""
    eta: float
    """max ||X_i - mu_i|| / mu_i"""
    factor: float
    """C_K <= factor C*_K + O(ln K), for either version: ICML's 1 + 4 eta ln B."""
    published: float
    """The factor that the version states: the preprint's 1 + max sigma_i / mu_i sqrt(ln B), or ICML's."""
    uniform: UniformPhase
    """The rounds in which scores are 0."""
    loss: float
    """The least proxy loss, l* = min_a max_i a_i mu_i."""
    most: float
    """The largest proxy regret of a round, D = B max mu_i - l*."""
    gaps: Floats
    """(n,) m_i mu_i - l*, the least regret of a round with last worker i: m_i tasks; inf where m_i > B."""
    means: Floats
    """(n,) The mean task times."""
    widths: Floats
    """(n,) The factors c_i of the confidence bounds, see ``uniform_phase``."""
    budget: int

    @property
    def statement(self) -> str:
        """What holds and, of the preprint, what was published and does not hold, with the command that shows it."""
        holds = f"C_K <= {self.factor:.3g} C*_K + O(ln K)"
        if self.version == "icml":
            return holds
        return (
            f"{holds}, with ICML's factor; as published C_K <= {self.published:.3g} C*_K + O(ln K), which does not "
            f"hold for every pool: {COUNTEREXAMPLE}"
        )

    def regret(self, rounds: ArrayLike) -> Floats:
        """A bound on the expected proxy regret of ATA in K rounds, E[sum_k l(a_k, mu)] - K l*; as ``rounds``, (...,).

        The paper states O(ln K); the constants are worked out here. With L = ln(2 K^2), the gap per task d_i = mu_i -
        l* / m_i, its largest value D_i = mu_i - l* / B, w(d) = sqrt(1 + 2 d / c_i) - 1, and sums over finite gaps,

            R_K <= min{K D, n B (1 + ln K) D + sum_i (L r_i + B mu_i - l*)},
            r_i = 2 c_i [1 + 4 / w(d_i) - 2 / w(D_i) + 2 ln(w(D_i) / w(d_i))].

        A mean of m times is more than 2 ||X - mu|| f off with a chance of 1 / k^2 at most (Bernstein, E|Y|^p <= p!
        ||Y||^p); so is one of any worker and any m < B k with a chance of n B / k, and the round then costs D at most.
        Else no score is above its mean (ATA-Empirical: m <= mu (1 + c f) gives m (1 - c f) <= mu), so max a_i s_i <=
        l*, and i is last with b tasks only if mu_i - l* / b <= mu_i - s_i <= 2 c_i f, so after at most 4 L / w(mu_i -
        l* / b)^2 tasks; the sum of mu_i - l* / b over these is L r_i. ValueError if a number of rounds is below 1.
        """
        k = np.asarray(rounds, np.float64)
        if not (k >= 1).all():
            raise ValueError(f"rounds must be numbers from 1 on, not {rounds!r}")
        bad = np.minimum(k, self.means.size * self.budget * (1 + np.log(k))) * self.most
        who = np.isfinite(self.gaps)
        c, mu, gaps, grows = self.widths[who], self.means[who], self.gaps[who], 0.0
        largest = mu - self.loss / self.budget
        if c.any():  # else nothing is to be learned
            low, high = (_excess(2 * c / gap) for gap in (gaps * mu / (gaps + self.loss), largest))
            grows = float((2 * c * (1 + 4 / low - 2 / high + 2 * np.log(high / low))).sum())
        bound = bad + np.log(2 * k * k) * grows + self.budget * float(largest.sum())
        return np.asarray(np.minimum(bound, k * self.most))


def guarantee(
    pool: Pool, budget: int, version: str = "preprint", empirical: bool = False, constant: float | None = None
) -> Guarantee:
    """What the theorems of the ATA paper promise for a pool (Maranjyan et al., ICML 2025, arXiv 2502.00775).

    The factor compares the expected runtime C_K of K rounds with that of the best fixed allocation, C*_K. It comes from
    l <= E[C(a)] <= factor l, l the proxy loss, and from a proxy regret of O(ln K), whatever the version. With ICML's
    factor, 1 + 4 eta ln B with eta = max ||X_i - mu_i|| / mu_i, that inequality holds for all allocations.

    The preprint states C_K <= (1 + eta sqrt(ln B)) C*_K + O(ln K), eta = max sigma_i / mu_i. That is false: the
    expected largest of B exponential times grows as ln B. With 23 workers of mean 0.8 beside 23 whose tasks take 1, and
    B = 23, the proxy loss is least where each of the former has a task, so O(ln K) of proxy regret has ATA play that in
    all rounds but O(ln K). It costs 0.8 (1 + 1/2 + ... + 1/23) = 2.99, and the others cost 1:

    >>> from ata_gym import expected_round_time, optimal_allocation, pools, proxy_optimal
    >>> pool = pools.exponential([0.8] * 23) + pools.deterministic([1.0] * 23)
    >>> least = optimal_allocation(pool, 23).cost
    >>> round(expected_round_time(pool, proxy_optimal(pool, 23)) / least, 3), least
    (2.987, 1.0)
    >>> found = guarantee(pool, 23)
    >>> round(found.published, 3), round(found.factor, 2)
    (2.771, 20.21)

    ``COUNTEREXAMPLE`` is the command that plays it.

    - ``pool``: the workers, whose task times are independent draws. A record counts as draws of its times.
    - ``budget``: results B that a round needs.
    - ``version``: "preprint" or "icml"; ``empirical``: whether it is for ATA-Empirical.
    - ``constant``: the alpha of ATA, in units of time, or the eta of ATA-Empirical, by default the least that the
      version allows: the largest psi1 norm (preprint: of X; ICML: of X - mean), for ATA-Empirical over the mean.

    ValueError if a psi1 norm is infinite (log-normal, Pareto, Weibull of a shape below 1), since nothing is promised
    then; if the constant is so small that the confidence bounds do not hold; and for arguments out of their range.

    >>> from ata_gym import scenario
    >>> cifar = scenario("icml2025-cifar100").pool
    >>> for version in ("preprint", "icml"):
    ...     found = guarantee(cifar, 23, version, empirical=True)
    ...     print(f"{found.factor:.2f} {found.published:.2f} {found.constant:.3f} {found.uniform.all_zero}")
    10.60 1.89 1.588 14290
    10.60 10.60 0.766 79
    """
    scale, centred = checked_version(version)
    budget = whole_number("budget", budget)
    means, off = checked_pool(pool).mean(), pool.psi1_norm(centred=True)
    if not np.isfinite(off).all():
        i = int(np.argmin(np.isfinite(off)))
        raise ValueError(f"no guarantee holds: the psi1 norm of worker {i} ({pool.families[i]}) is infinite")
    unit = means if empirical else np.ones_like(means)
    least = float((pool.psi1_norm(centred) / unit).max())
    played = least if constant is None else non_negative("constant", constant)
    widths = scale * played * unit
    if (widths < _BERNSTEIN * off * (1 - _SAME)).any():
        name = "eta" if empirical else "alpha"
        raise ValueError(f"no guarantee holds for {name} = {played:.6g}: give {least:.6g}, or leave it out")
    eta = float((off / means).max())
    factor = 1 + 4 * eta * math.log(budget)
    published = factor if centred else 1 + float((pool.sd() / means).max()) * math.sqrt(math.log(budget))
    loss = float(proxy_loss(proxy_optimal(pool, budget), means))
    most = budget * float(means.max()) - loss
    tasks = np.floor(loss / means * (1 + _SAME)) + 1
    gaps = np.where(tasks <= budget, tasks * means - loss, np.inf)
    phase = uniform_phase(means, budget, widths)
    return Guarantee(version, empirical, played, eta, factor, published, phase, loss, most, gaps, means, widths, budget)
