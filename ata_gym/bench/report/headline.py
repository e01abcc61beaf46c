"""The headline of a study: who is best in each game, who is tied with it, and what follows from the seeds.

A race cancels what an allocation waits for, so that each game has a sentence of its own.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import gymnasium as gym
import numpy as np

import ata_policies
from ata_gym.bench.report.statistics import CONFIDENCE, Estimate, Pairs, different_pairs
from ata_gym.typing import Floats
from ata_policies.facts import is_oracle, together
from ata_policies.registry import parse

LEARNER, ORACLE, BASELINE = "learner", "oracle", "baseline"

Samples = Mapping[str, Mapping[str, Floats]]
"""The values of the seeds by quantity and policy, as ``statistics.ends`` gives them. Policies are ranked by the cost if
it is there, and otherwise by the first quantity."""

NOUNS = {"runtime": "runtime", "total_worker_time": "worker time", "cost": "cost"}

SAID = {
    "ofta": "OFTA, the oracle of the means", "dynamic-ofta": "dynamic-ofta, the oracle of each round's means",
    "dynamic-oracle": "dynamic-oracle, the oracle of each round's distributions", "uta": "uta, the uniform policy",
    "ata": "ata, ATA as in the preprint", "ata-icml": "ata-icml, ATA as at ICML",
    "gta": "GTA, which starts every worker and cancels the rest",
    "dispatch-gta": "dispatch-gta, which starts every worker and cancels the rest",
}  # fmt: skip
"""The policies that others are compared with, in words."""

_ANY_GAME = (("ofta", "dynamic-ofta", "dynamic-oracle"), ("uta",))
_OWN = {"TaskAllocation": ("ata", "ata-icml"), "TaskRace": ("gta",), "TaskDispatch": ("dispatch-gta",)}
"""Policies that the best one of a game is compared with: the first of each group that was played."""

TIED = "Tied: not different by paired t tests of all pairs, with Holm's correction."
ONE_SEED = "Nothing follows from one seed: its figures have no interval."


@dataclass(frozen=True)
class Competitor:
    """A policy that is compared with others."""

    policy: str
    env: str  # the id that it plays, without the namespace and the version
    kind: str
    """``ORACLE``: it knows what others must learn; ``BASELINE``: it neither knows nor learns; else ``LEARNER``."""
    priced: bool = False  # whether its decisions depend on the price

    @classmethod
    def of(cls, name: str) -> "Competitor":
        """The competitor of a policy's name; ValueError if there is no such policy."""
        policy = ata_policies.load(name)
        without = LEARNER if policy.learns else BASELINE
        kind = ORACLE if is_oracle(together(policy.made_of(**parse(name)[1]), "knows")) else without
        return cls(name, gym.spec(policy.env_id).name, kind, policy.priced)


def headline(samples: Samples, players: Iterable[Competitor]) -> str:
    """A sentence for each game on who is best, lines that compare it with others, and what the intervals are."""
    counts = what_counts(samples)
    games = _games(samples, players)
    if not games:
        return "There is nothing to compare yet."
    lines = [of_game(samples, game) for game in games]
    if sum(map(len, games)) == 1:
        return lines[0]
    seeds = len(samples[counts][games[0][0].policy])
    return with_intervals(lines, seeds)


def leaders(samples: Samples, players: Iterable[Competitor]) -> list[str]:
    """The best learner of each game, or the best of all where none learns."""
    return [best_of(samples, _ranked(game))[0] for game in _games(samples, players)]


def _games(samples: Samples, players: Iterable[Competitor]) -> list[list[Competitor]]:
    of: dict[str, list[Competitor]] = {}
    for player in players:
        if player.policy in samples[what_counts(samples)]:
            of.setdefault(player.env, []).append(player)
    return list(of.values())


def best_of(samples: Samples, names: Sequence[str]) -> tuple[str, list[str]]:
    """The policy of some that has the least geometric mean of what counts, and those that are tied with it.

    The ties are those among all policies of the samples.
    """
    of = samples[what_counts(samples)]
    with np.errstate(divide="ignore"):  # recorded times may be 0
        best = min(names, key=lambda name: float(np.log(of[name]).mean()))
    different = different_in_ratio(of)
    return best, [name for name in names if name != best and frozenset((name, best)) not in different]


def different_in_ratio(of: Mapping[str, Floats]) -> Pairs:
    """The pairs of policies whose ratio on the same seeds, (seeds,) each, is clearly not 1; see ``different_pairs``."""
    with np.errstate(divide="ignore"):
        return different_pairs({name: np.log(sample) for name, sample in of.items()})


def beside(samples: Samples, name: str, others: Mapping[str, str]) -> list[str]:
    """A line for each of some other policies, given with their descriptions: what the policy needs compared with it."""
    found, counts = [], what_counts(samples)
    different = different_in_ratio(samples[counts])
    for other, words in others.items():
        parts = []
        for quantity in dict.fromkeys([counts, *samples]):
            of = samples[quantity]
            if {name, other} <= of.keys():
                ratio, noun = Estimate.of_ratio(of[name], of[other]), NOUNS.get(quantity, quantity)
                tied = quantity == counts and frozenset((name, other)) not in different
                parts.append(more_or_less(ratio, noun) + tie_among(ratio, len(samples[counts])) * tied)
        if other != name and any(parts):
            found.append(f"beside {words}: {', '.join(filter(None, parts))}")
    return found


def tie_among(ratio: Estimate, policies: int) -> str:
    """What to add to a tie whose interval does not hold 1: it is the interval of one pair, not of all pairs.

    >>> tie_among(Estimate(0.9, 0.85, 0.95), 20), tie_among(Estimate(0.9, 0.8, 1.1), 20)
    (' (a tie among 20 policies)', '')
    """
    return f" (a tie among {policies} policies)" if ratio.low > 1.0 or ratio.high < 1.0 else ""


def more_or_less(ratio: Estimate, noun: str) -> str:
    """A ratio in words, with its interval; empty if it is not known.

    >>> more_or_less(Estimate(0.5, 0.25, 0.751), "runtime"), more_or_less(Estimate(1.2, np.nan, np.nan), "cost")
    ('50 % less runtime (25 to 75 %)', '20 % more cost')
    >>> more_or_less(Estimate(1.02, 0.99, 1.05), "cost"), more_or_less(Estimate(1.0, 1.0, 1.0), "cost")
    ('no clear difference in cost (1 % less to 5 % more)', 'as much cost')
    """
    if not np.isfinite(ratio.mean):
        return ""
    if ratio.mean == 1.0 and not ratio.low < ratio.high:
        return f"as much {noun}"
    if ratio.low <= 1.0 <= ratio.high:
        return f"no clear difference in {noun} ({_side(ratio.low)} to {_side(ratio.high)})"
    ends = sorted((ratio.low, ratio.high), key=lambda end: abs(end - 1.0))
    alone = bool(np.isnan(ratio.low))
    fine = not alone and _percent(ratio.low) == _percent(ratio.high)  # or the ends would seem to be one
    between = "" if alone else f" ({_percent(ends[0], fine)} to {_percent(ends[1], fine)} %)"
    return f"{_side(ratio.mean, fine)} {noun}{between}"


def listed(names: Sequence[str]) -> str:
    """Names in a sentence.

    >>> listed(["a"]), listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return f"{', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]


def in_brackets(seeds: int, tied: bool) -> str:
    """Sentences that say what intervals are, and ties where there are some, or that nothing follows from one seed."""
    if seeds == 1:
        return ONE_SEED
    intervals = (
        f"In brackets: {100 * CONFIDENCE:g} % intervals over {seeds:,} paired seeds; less and more are by geometric "
        "means of the ratios, not by ratios of the means."
    )
    return f"{intervals} {TIED}" if tied else intervals


def with_intervals(lines: Sequence[str], seeds: int) -> str:
    """Lines, and what their intervals are: it is said below them, and above them that nothing follows from one seed."""
    if seeds == 1:
        return "\n".join([ONE_SEED, *lines])
    return "\n".join([*lines, in_brackets(seeds, any(word in line for line in lines for word in ("tied", "a tie")))])


def what_counts(samples: Samples) -> str:
    """The quantity by which policies are ranked."""
    return "cost" if "cost" in samples else next(iter(samples))


def of_game(samples: Samples, players: Sequence[Competitor]) -> str:
    """The sentence and the lines of one game."""
    names, counts = _ranked(players), what_counts(samples)
    best, tied = best_of(samples, names)
    who = f"{players[0].env.removeprefix('Task').capitalize()}: {best}"
    learn = any(player.kind == LEARNER for player in players)
    many = f"of {len(names)} {'that learn' if learn else 'that were played, of which none learns'}"
    has = f"{who} has the least {NOUNS.get(counts, counts)} {many}" if len(names) > 1 else f"{who} played alone"
    if len(names) == 1 and len(players) > 1:
        has = f"{who} is the only one that learns"
    groups = (*_ANY_GAME, _OWN.get(players[0].env, ()))
    shown = [next((name for name in group if name in samples[counts] and name != best), None) for group in groups]
    others = {name: SAID[name] for name in shown if name is not None}
    if not others and len(players) > 1:
        rest = [player.policy for player in players if player.policy != best]
        most = max(rest, key=lambda name: float(samples[counts][name].mean()))
        others = {most: f"{most}, which has the most {NOUNS.get(counts, counts)} of the others" if rest[1:] else most}
    with_whom = f", tied with {listed(tied)}" if tied else ""
    return "\n".join([f"{has}{with_whom}.", *(f"  {line}" for line in beside(samples, best, others))])


def _ranked(players: Sequence[Competitor]) -> list[str]:  # the policies that learn, or all policies if none learns
    learners = [player.policy for player in players if player.kind == LEARNER]
    return learners or [player.policy for player in players]


def _side(ratio: float, fine: bool = False) -> str:
    return f"{_percent(ratio, fine)} % {'less' if ratio < 1.0 else 'more'}"


def _percent(ratio: float, fine: bool = False) -> str:
    """How far a ratio is from 1, in whole percent where it is far, or ``fine`` with a decimal.

    >>> _percent(1.0519), _percent(0.403), _percent(12.5), _percent(0.004), _percent(1.0001)
    ('5.2', '60', '1,150', '99.6', 'under 0.1')
    """
    share = 100.0 * abs(ratio - 1.0)
    coarse = share >= 9.95 and not (fine or 99.0 < share < 100.0)
    return "under 0.1" if 0.0 < share < 0.05 else f"{share:,.{0 if coarse else 1}f}".removesuffix(".0")
