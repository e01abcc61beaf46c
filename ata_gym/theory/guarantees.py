"""The promises of ATA's theorems for a pool: the factor, the uniform phase and the regret."""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import betaincc, ndtr

from ata_gym.pools.pool import Pool, checked_pool
from ata_gym.theory.allocation.proxy_loss import allocate_scores, proxy_loss, proxy_optimal
from ata_gym.theory.lower_bound import SAME_LOSS, RegretLowerBound, regret_lower_bound
from ata_gym.typing import Floats
from ata_gym.utils.validation import non_negative, whole_number


class Version(NamedTuple):
    """A version of the paper, described by the differences between the versions."""

    factor: float
    """The number that multiplies alpha or eta in a confidence bound."""
    centred: bool
    """Whether alpha and eta bound the psi1 norms of X - mean, and not of X."""


VERSIONS = {"preprint": Version(4 * math.e, centred=False), "icml": Version(2.0, centred=True)}
"""The versions by name: the preprint with every published figure, and the ICML poster."""

COUNTEREXAMPLE = (
    "ata-gym bench --scenario counterexample-preprint --policies oracle,ofta,ata-icml --out"
    " results/counterexample"
)
"""The command that plays a pool for which the preprint's factor does not hold."""

# |mean of K times - mu| is below 2 ||X - mu|| (sqrt(L / K) + L / K) but for a chance of 2 exp(-L)
_BERNSTEIN = 2.0
_FIXED_POINT_STEPS = 64  # steps to a fixed point, each of which at least halves the error
_PLAYED_ROUNDS = 1000  # a phase of up to so many rounds is played, in at most ten times as many
_MOST_TASKS = 1e290  # needed by a worker; so that no number of rounds overflows
_NORMAL_VARIANCE = 1e4  # variance from which a binomial number counts as normal


def checked_version(version: str) -> Version:
    """Return the version of a name, with ValueError if there is none."""
    if version not in VERSIONS:
        raise ValueError(f"version must be {' or '.join(map(repr, VERSIONS))}, not {version!r}")
    return VERSIONS[version]


class UniformPhase(NamedTuple):
    """How long ATA has scores of 0, where task times are at their means.

    From then on it prefers the fast workers.
    """

    all_zero: int
    """The round before the first with a score above 0; until then all workers get equal shares."""
    some_zero: int
    """The last round in which some score is 0; workers of such a score share all tasks."""


def uniform_phase(means: Floats, budget: int, width: Floats | float) -> UniformPhase:
    """The rounds of ATA in which scores are 0, for mean task times (n,).

    The score of worker i after K_i tasks, in round k, is (mu_i - c_i f)+ with

        f = sqrt(L / K_i) + L / K_i and L = ln(2 k^2).

    It is 0 as long as K_i <= L g_i, where g_i = 4 / (sqrt(1 + 4 mu_i / c_i) - 1)^2, and before the
    first task. Workers of score 0 get all tasks, so some scores are 0 until

        B (k - 1) = sum (floor(L g_i) + 1).

    Equal shares are whole tasks, and the workers that get one more are drawn. So the first score
    above 0 is a matter of chance: ``all_zero`` is about the median. A phase of up to 1,000 rounds
    is played instead, with one draw of the shares, since one round can give workers of score 0 far
    more tasks than they need.

    Args:
        means: Mean task times mu, shape (n,), in units of time.
        budget: Results B that a round needs.
        width: The factors c of the confidence bounds, shape (n,) or a number, in units of time: 4 e
            alpha or 2 alpha, for ATA-Empirical 4 e eta mu_i or 2 eta mu_i (Algorithms 1 and 2).

    Example:
        >>> from ata_gym import scenario
        >>> means = scenario("icml2025-cifar100").pool.mean()
        >>> uniform_phase(means, 23, 4 * math.e * 5916)  # of 750,000 rounds
        UniformPhase(all_zero=23835, some_zero=2644440)
    """
    with np.errstate(divide="ignore", over="ignore"):
        tasks = np.minimum(4 / _excess(width / means) ** 2, _MOST_TASKS)
    # The fixed point of B k = sum (floor(L(k) g_i) + 1), from above.
    last = 10**300
    for _ in range(_FIXED_POINT_STEPS):
        needed = np.floor(_level(last) * tasks) + 1.0
        last = math.ceil(float(needed.sum()) / budget)
    if last <= _PLAYED_ROUNDS:
        return _simulated_phase(means, budget, width)
    return UniformPhase(min(_last_likely_zero(tasks, budget, last), last), last)


def _level(k: int) -> float:
    """L = ln(2 k^2) of round k."""
    return math.log(2) + 2 * math.log(k)


def _last_likely_zero(tasks: Floats, budget: int, last: int) -> int:
    """The last round, at most ``last``, before which all scores are likely to be 0.

    A score is 0 as long as its worker has had at most L times ``tasks``. Untried workers come
    first. Then each gets floor(B / n) tasks in a round, and one more with a chance of p = (B mod n)
    / n.
    """

    def likely(k: int) -> bool:
        """Whether all scores are 0 in round k with a chance of at least 1/2."""
        whole_share = budget // tasks.size
        share = budget % tasks.size / tasks.size
        rounds = float(k - 1)
        tried = 1.0
        # With fewer tasks than workers, the first 1 / share rounds give each worker its first task.
        if whole_share == 0:
            tried = min(rounds * share, 1.0)
            rounds = max(math.floor(rounds - 1 / share), 0.0)
        spare = np.floor(_level(k) * tasks) - max(whole_share * rounds, 1.0)
        stay_chance = np.where(spare < 0, 0.0, _binomial_cdf(spare, rounds, share))
        chance = np.maximum(1.0 - tried + tried * stay_chance, np.finfo(float).tiny)
        return bool(np.log(chance).sum() >= -math.log(2))

    # Bisection: ``low`` is likely, and the rounds after ``high`` are not.
    low = 1
    high = last
    while low < high:
        middle = (low + high + 1) // 2
        if likely(middle):
            low = middle
        else:
            high = middle - 1
    return low


def _binomial_cdf(bound: Floats, trials: float, chance: float) -> Floats:
    """P(X <= bound) for a binomial X, in the shape of ``bound``."""
    variance = trials * chance * (1.0 - chance)
    if variance > _NORMAL_VARIANCE:
        return np.asarray(ndtr((bound + 0.5 - trials * chance) / math.sqrt(variance)))
    successes = np.minimum(bound, trials - 1.0)
    probability = betaincc(
        np.maximum(successes, 0.0) + 1.0, np.maximum(trials - successes, 1.0), chance
    )
    return np.where(bound >= trials, 1.0, probability)


def _simulated_phase(means: Floats, budget: int, width: Floats | float) -> UniformPhase:
    """The phase of one run of ATA, in which every task takes its mean time."""
    counts = np.zeros(means.size)
    all_zero = 0
    some_zero = 0
    for k in range(1, 10 * _PLAYED_ROUNDS):
        with np.errstate(divide="ignore", invalid="ignore"):
            level = _level(k) / counts
            scores = np.where(
                counts > 0,
                np.maximum(means - width * (np.sqrt(level) + level), 0.0),
                0.0,
            )
        if scores.all():
            # As L grows, a score may fall to 0 again, so the run goes on for a while.
            if k > 2 * some_zero + budget:
                break
        else:
            some_zero = k
        if all_zero == k - 1 and not scores.any():
            all_zero = k
        counts += allocate_scores(scores, budget, np.asarray(k, np.uint64), counts == 0)
    return UniformPhase(all_zero, some_zero)


def _excess(ratio: Floats) -> Floats:
    """Return sqrt(1 + 4 / ratio) - 1 without loss of digits; infinite at 0."""
    return np.asarray(4 / (np.sqrt(ratio * (ratio + 4)) + ratio))


@dataclass(frozen=True)
class Guarantee:
    """The promise of the theorems for ATA on a pool; times are in the pool's unit."""

    version: str
    """The version of the paper, "preprint" or "icml"."""
    empirical: bool
    """Whether the promise is for ATA-Empirical."""
    constant: float
    """The alpha that ATA plays with, or the eta of ATA-Empirical."""
    eta: float
    """The largest psi1 norm over the mean, max ||X_i - mu_i|| / mu_i."""
    factor: float
    """The factor in C_K <= factor C*_K + O(ln K), for either version: ICML's 1 + 4 eta ln B."""
    published_factor: float
    """The factor that the version states.

    It is 1 + max sigma_i / mu_i sqrt(ln B) for the preprint, and ``factor`` for ICML.
    """
    uniform_phase: UniformPhase
    """The rounds in which scores are 0."""
    loss: float
    """The least proxy loss, l* = min_a max_i a_i mu_i."""
    largest_regret: float
    """The largest proxy regret of a round, D = B max mu_i - l*."""
    gaps: Floats
    """The least proxy regret of a round whose last worker is i, m_i mu_i - l*, shape (n,).

    The worker then has m_i tasks, the least number of a loss above l*; inf where m_i > B.
    """
    means: Floats
    """The mean task times, shape (n,)."""
    widths: Floats
    """The factors c_i of the confidence bounds, shape (n,), see ``uniform_phase``."""
    budget: int
    """The results B that a round needs."""
    pool: Pool
    """The workers."""

    @property
    def lower_bound(self) -> RegretLowerBound:
        """What the proxy regret of every policy is at least, as the number of rounds grows.

        It is computed at each call: a linear program.
        """
        return regret_lower_bound(self.pool, self.budget)

    @property
    def statement(self) -> str:
        """The inequality that holds.

        For the preprint, the published inequality follows, which does not hold, with the command
        that shows it.
        """
        holds = f"C_K <= {self.factor:.3g} C*_K + O(ln K)"
        if self.version == "icml":
            return holds
        return (
            f"{holds}, with ICML's factor; as published C_K <= {self.published_factor:.3g} C*_K +"
            f" O(ln K), which does not hold for every pool: {COUNTEREXAMPLE}"
        )

    def regret(self, rounds: ArrayLike) -> Floats:
        """A bound on the expected proxy regret of ATA in K rounds, in the shape of ``rounds``.

        The regret is R_K = E[sum_k l(a_k, mu)] - K l*. The paper states O(ln K); the constants are
        worked out here. With L = ln(2 K^2), the gap per task d_i = mu_i - l* / m_i, its largest
        value D_i = mu_i - l* / B, w(d) = sqrt(1 + 2 d / c_i) - 1, and sums over finite gaps,

            R_K <= min{K D, n B (1 + ln K) D + sum_i (L r_i + B mu_i - l*)},
            r_i = 2 c_i [1 + 4 / w(d_i) - 2 / w(D_i) + 2 ln(w(D_i) / w(d_i))].

        Proof: a mean of m times differs from mu by more than 2 ||X - mu|| f with a chance of at
        most 1 / k^2 (Bernstein, E|Y|^p <= p! ||Y||^p). For any worker and any m < B k, the chance
        is at most n B / k, and the round then costs at most D. Else no score is above its mean
        (ATA-Empirical: m <= mu (1 + c f) gives m (1 - c f) <= mu), so max a_i s_i <= l*. Worker i
        is last with b tasks only if mu_i - l* / b <= mu_i - s_i <= 2 c_i f, so after at most 4 L /
        w(mu_i - l* / b)^2 tasks. The sum of mu_i - l* / b over these tasks is L r_i.

        Args:
            rounds: Numbers of rounds K, shape (...,).

        Raises:
            ValueError: If a number of rounds is below 1.
        """
        k = np.asarray(rounds, np.float64)
        if not (k >= 1).all():
            raise ValueError(f"rounds must be numbers from 1 on, not {rounds!r}")
        early_regret = (
            np.minimum(k, self.means.size * self.budget * (1 + np.log(k))) * self.largest_regret
        )
        finite = np.isfinite(self.gaps)
        c = self.widths[finite]
        mu = self.means[finite]
        gaps = self.gaps[finite]
        log_factor = 0.0
        largest = mu - self.loss / self.budget
        # With widths of 0 the scores are the means from the start.
        if c.any():
            # A gap is m_i mu_i - l*, so that the gap plus l* is m_i mu_i.
            gaps_per_task = gaps * mu / (gaps + self.loss)
            low = _excess(2 * c / gaps_per_task)
            high = _excess(2 * c / largest)
            r = 2 * c * (1 + 4 / low - 2 / high + 2 * np.log(high / low))
            log_factor = float(r.sum())
        late_regret = np.log(2 * k * k) * log_factor
        bound = early_regret + late_regret + self.budget * float(largest.sum())
        return np.asarray(np.minimum(bound, k * self.largest_regret))


def guarantee(
    pool: Pool,
    budget: int,
    version: str = "preprint",
    empirical: bool = False,
    constant: float | None = None,
) -> Guarantee:
    """The promise of the theorems of the ATA paper for a pool.

    Source: Maranjyan et al., ICML 2025, arXiv 2502.00775. The factor compares the expected runtime
    C_K of K rounds with the runtime C*_K of the best fixed allocation. It comes from l <= E[C(a)]
    <= factor l, l the proxy loss, and from a proxy regret of O(ln K), whatever the version. With
    ICML's factor, 1 + 4 eta ln B with eta = max ||X_i - mu_i|| / mu_i, this inequality holds for
    all allocations.

    The preprint states C_K <= (1 + eta sqrt(ln B)) C*_K + O(ln K), eta = max sigma_i / mu_i. The
    statement is false: the expected largest of B exponential times grows as ln B. The second
    example has 23 workers of mean 0.8, 23 workers whose tasks take 1, and B = 23. The proxy loss is
    least where each of the first 23 has a task, so with a proxy regret of O(ln K), ATA plays this
    allocation in all rounds but O(ln K). It costs 0.8 (1 + 1/2 + ... + 1/23) = 2.99, and the
    allocation to the other workers costs 1. ``COUNTEREXAMPLE`` is the command that plays it.

    Args:
        pool: The workers, whose task times are independent draws. A record counts as draws of its
            times.
        budget: Results B that a round needs.
        version: "preprint" or "icml".
        empirical: Whether the promise is for ATA-Empirical.
        constant: The alpha of ATA, in units of time, or the eta of ATA-Empirical, by default the
            least that the version allows: the largest psi1 norm (preprint: of X; ICML: of X -
            mean), for ATA-Empirical over the mean.

    Raises:
        ValueError: If the pool has a latency, which the theorems do not know; if a psi1 norm is
            infinite (log-normal, Pareto, Weibull of a shape below 1), since nothing is promised
            then; if the constant is so small that the confidence bounds do not hold; and for
            arguments out of their range.

    Example:
        The factor, the published factor, the constant and the length of the uniform phase:

        >>> from ata_gym import scenario
        >>> cifar = scenario("icml2025-cifar100").pool
        >>> for version in ("preprint", "icml"):
        ...     promise = guarantee(cifar, 23, version, empirical=True)
        ...     factors = f"{promise.factor:.2f} {promise.published_factor:.2f}"
        ...     print(f"{factors} {promise.constant:.3f} {promise.uniform_phase.all_zero}")
        10.60 1.89 1.588 14290
        10.60 10.60 0.766 79

        A pool for which the preprint's factor does not hold:

        >>> from ata_gym import expected_round_time, optimal_allocation, pools, proxy_optimal
        >>> pool = pools.exponential([0.8] * 23) + pools.deterministic([1.0] * 23)
        >>> least = optimal_allocation(pool, 23).cost
        >>> round(expected_round_time(pool, proxy_optimal(pool, 23)) / least, 3), least
        (2.987, 1.0)
        >>> promise = guarantee(pool, 23)
        >>> round(promise.published_factor, 3), round(promise.factor, 2)
        (2.771, 20.21)
    """
    scale, centred = checked_version(version)
    budget = whole_number("budget", budget)
    means = checked_pool(pool).mean()
    if pool.latency is not None:
        raise ValueError(
            "the theorems hold for rounds without latency, and this pool has one: ask for the"
            " guarantee of pool.with_latency(None)",
        )
    deviation_norm = pool.psi1_norm(centred=True)
    if not np.isfinite(deviation_norm).all():
        i = int(np.argmin(np.isfinite(deviation_norm)))
        raise ValueError(
            f"no guarantee holds: the psi1 norm of worker {i} ({pool.families[i]}) is infinite",
        )
    if empirical:
        unit = means
    else:
        unit = np.ones_like(means)
    least_constant = float((pool.psi1_norm(centred) / unit).max())
    if constant is None:
        width_constant = least_constant
    else:
        width_constant = non_negative("constant", constant)
    widths = scale * width_constant * unit
    if (widths < _BERNSTEIN * deviation_norm * (1 - SAME_LOSS)).any():
        if empirical:
            name = "eta"
        else:
            name = "alpha"
        raise ValueError(
            f"no guarantee holds for {name} = {width_constant:.6g}: give {least_constant:.6g},"
            " or leave it out",
        )
    eta = float((deviation_norm / means).max())
    factor = 1 + 4 * eta * math.log(budget)
    if centred:
        published_factor = factor
    else:
        published_factor = 1 + float((pool.sd() / means).max()) * math.sqrt(math.log(budget))
    loss = float(proxy_loss(proxy_optimal(pool, budget), means))
    largest_regret = budget * float(means.max()) - loss
    # The least number of tasks that makes a worker's loss larger than the least loss.
    tasks = np.floor(loss / means * (1 + SAME_LOSS)) + 1
    gaps = np.where(tasks <= budget, tasks * means - loss, np.inf)
    phase = uniform_phase(means, budget, widths)
    return Guarantee(
        version,
        empirical,
        width_constant,
        eta,
        factor,
        published_factor,
        phase,
        loss,
        largest_regret,
        gaps,
        means,
        widths,
        budget,
        pool,
    )
