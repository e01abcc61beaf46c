"""The headline of a study: who is best in each env, who is tied with it, what is certain.

A race cancels what an allocation waits for, so that each env has a sentence of its own.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from ata_gym.bench.report.quantities import noun
from ata_gym.bench.report.statistics import CONFIDENCE, Estimate, Pairs, different_pairs
from ata_gym.bench.role import Role
from ata_gym.typing import Floats

Samples = Mapping[str, Mapping[str, Floats]]
"""The values of the seeds, (seeds,), by quantity and policy, as ``statistics.ends`` has them.

Policies are ranked by the cost if it is there, and otherwise by the first quantity.
"""

DESCRIPTIONS = {
    "ofta": "OFTA, an oracle that knows all mean task times",
    "dynamic-ofta": "dynamic-ofta, an oracle that knows each round's mean task times",
    "dynamic-oracle": "dynamic-oracle, an oracle that knows each round's distributions",
    "uta": "uta, which gives all workers equally many tasks",
    "ata": "ata, the published policy as in the preprint",
    "ata-icml": "ata-icml, the published policy as at ICML",
    "gta": "GTA, which keeps every worker busy and cancels the rest",
    "dispatch-gta": "dispatch-gta, which keeps every worker busy and cancels the rest",
}
"""The policies that others are compared with, in words."""

_COMMON_RIVALS = (("ofta", "dynamic-ofta", "dynamic-oracle"), ("uta",))
_RIVALS_BY_ENV = {
    "TaskAllocation": ("ata", "ata-icml"),
    "TaskRace": ("gta",),
    "TaskDispatch": ("dispatch-gta",),
}
"""Further policies that the best one of an env is compared with, by env.

Of each of these groups, and of each of ``_COMMON_RIVALS``, it is the first that was played.
"""

TIED = "Tied: not different by paired t tests of all pairs, with Holm's correction."
"""The sentence that says what a tie is."""
IN_BRACKETS = "In brackets: "
"""The beginning of the sentences that say what intervals are."""
ONE_SEED = "Nothing follows from one seed: its figures have no interval."
"""The sentence that stands in place of intervals where there is one seed."""


def headline(samples: Samples, roles: Iterable[Role], scope: str = "") -> str:
    """Return the headline of all envs, and what its intervals are.

    Each env has a sentence on who is best, and lines that compare it with others.

    Args:
        samples: The values of all policies.
        roles: The policies.
        scope: A line that says of what the sentences are, ending with a colon; empty for none.
    """
    main_quantity = what_counts(samples)
    groups = _by_env(samples, roles)
    if not groups:
        return "There is nothing to compare yet."
    lines = [headline_of_env(samples, group) for group in groups]
    if scope:
        lines.insert(0, scope)
    if sum(map(len, groups)) == 1:
        return "\n".join(lines)
    seeds = len(samples[main_quantity][groups[0][0].policy])
    return with_intervals(lines, seeds)


def leaders(samples: Samples, roles: Iterable[Role]) -> list[str]:
    """Return the best learner of each env, or the best of all where none learns."""
    return [best_of(samples, _ranked(group))[0] for group in _by_env(samples, roles)]


def _by_env(samples: Samples, roles: Iterable[Role]) -> list[list[Role]]:
    """Group the policies that have values by the env that they play."""
    groups: dict[str, list[Role]] = {}
    for role in roles:
        if role.policy in samples[what_counts(samples)]:
            groups.setdefault(role.env, []).append(role)
    return list(groups.values())


def best_of(samples: Samples, names: Sequence[str]) -> tuple[str, list[str]]:
    """Return the best of some policies, and the ones of them that are tied with it.

    The best has the least geometric mean of what counts. The tests correct for all pairs of
    policies of the samples, not only for pairs of ``names``.
    """
    values_by_policy = samples[what_counts(samples)]
    # Recorded times may be 0.
    with np.errstate(divide="ignore"):
        best = min(names, key=lambda name: float(np.log(values_by_policy[name]).mean()))
    different = different_in_ratio(values_by_policy)
    other_names = [name for name in names if name != best]
    return best, [name for name in other_names if frozenset((name, best)) not in different]


def different_in_ratio(
    values_by_policy: Mapping[str, Floats],
    successive: bool = False,
) -> Pairs:
    """Return the pairs of policies whose ratio on the same seeds is clearly not 1.

    The test is the one of ``different_pairs``.

    Args:
        values_by_policy: The values of each policy, shape (seeds,).
        successive: Whether the values follow each other in time.
    """
    with np.errstate(divide="ignore"):
        logarithms = {name: np.log(sample) for name, sample in values_by_policy.items()}
    return different_pairs(logarithms, successive)


def compared_with(samples: Samples, name: str, rivals: Mapping[str, str]) -> list[str]:
    """Return a line for each of some other policies: what a policy needs compared with it.

    Args:
        samples: The values of all policies.
        name: The policy.
        rivals: The other policies, each with its description.
    """
    lines = []
    main_quantity = what_counts(samples)
    different = different_in_ratio(samples[main_quantity])
    for rival, description in rivals.items():
        parts = []
        for quantity in dict.fromkeys([main_quantity, *samples]):
            values_by_policy = samples[quantity]
            if {name, rival} <= values_by_policy.keys():
                ratio = Estimate.from_ratio(values_by_policy[name], values_by_policy[rival])
                part = more_or_less(ratio, noun(quantity))
                if quantity == main_quantity and frozenset((name, rival)) not in different:
                    part += tie_among(ratio, len(samples[main_quantity]))
                parts.append(part)
        if rival != name and any(parts):
            lines.append(f"compared with {description}: {', '.join(filter(None, parts))}")
    return lines


def tie_among(ratio: Estimate, policies: int) -> str:
    """Return what to add to a tie whose interval does not hold 1; otherwise an empty text.

    There the two seem to differ, since the interval is the one of a single pair, while a tie is
    found among all pairs.

    Example:
        >>> tie_among(Estimate(0.9, 0.85, 0.95), 20), tie_among(Estimate(0.9, 0.8, 1.1), 20)
        (' (a tie among 20 policies)', '')
    """
    if ratio.low > 1.0 or ratio.high < 1.0:
        return f" (a tie among {policies} policies)"
    return ""


def more_or_less(ratio: Estimate, quantity: str) -> str:
    """Return a ratio in words, with its interval; empty if the ratio is not known.

    Example:
        >>> more_or_less(Estimate(0.5, 0.25, 0.751), "runtime")
        '50 % less runtime (25 to 75 %)'
        >>> more_or_less(Estimate(1.2, np.nan, np.nan), "cost")
        '20 % more cost'
        >>> more_or_less(Estimate(1.02, 0.99, 1.05), "cost")
        'no clear difference in cost (1 % less to 5 % more)'
        >>> more_or_less(Estimate(1.0, 1.0, 1.0), "cost")
        'as much cost'
    """
    if not np.isfinite(ratio.mean):
        return ""
    if ratio.mean == 1.0 and not ratio.low < ratio.high:
        return f"as much {quantity}"
    if ratio.low <= 1.0 <= ratio.high:
        return f"no clear difference in {quantity} ({_side(ratio.low)} to {_side(ratio.high)})"
    if np.isnan(ratio.low):
        return f"{_side(ratio.mean)} {quantity}"
    # The end that is nearer to 1 comes first, so that the percentages rise.
    ends = sorted((ratio.low, ratio.high), key=lambda end: abs(end - 1.0))
    # With a decimal where both ends would be the same whole percent.
    fine = _percent(ratio.low) == _percent(ratio.high)
    interval_text = f"{_percent(ends[0], fine)} to {_percent(ends[1], fine)} %"
    return f"{_side(ratio.mean, fine)} {quantity} ({interval_text})"


def listed(names: Sequence[str]) -> str:
    """Return names as they stand in a sentence.

    Example:
        >>> listed(["a"]), listed(["a", "b", "c"])
        ('a', 'a, b and c')
    """
    if len(names) > 1:
        return f"{', '.join(names[:-1])} and {names[-1]}"
    return names[0]


def in_brackets(pairs: int, tied: bool, paired_by: str = "seed") -> str:
    """Return sentences that say what intervals are, and what a tie is where there are ties.

    For one pair it is the sentence that nothing follows.

    Args:
        pairs: The number of pairs of values that are compared.
        tied: Whether there are ties.
        paired_by: What the values of a pair have in common.

    Example:
        >>> in_brackets(1, tied=False, paired_by="log part")
        'Nothing follows from one log part: its figures have no interval.'
    """
    if pairs == 1:
        return ONE_SEED.replace("seed", paired_by)
    intervals = (
        f"{IN_BRACKETS}{100 * CONFIDENCE:g} % intervals over {pairs:,} paired {paired_by}s; less"
        " and more are by geometric means of the ratios, not by ratios of the means."
    )
    if tied:
        return f"{intervals} {TIED}"
    return intervals


def with_intervals(lines: Sequence[str], seeds: int) -> str:
    """Return lines with what their intervals are below them.

    For one seed the sentence that nothing follows stands above them.
    """
    if seeds == 1:
        return "\n".join([ONE_SEED, *lines])
    tied = any(word in line for line in lines for word in ("tied", "a tie"))
    return "\n".join([*lines, in_brackets(seeds, tied)])


def what_counts(samples: Samples) -> str:
    """Return the quantity by which policies are ranked."""
    if "cost" in samples:
        return "cost"
    return next(iter(samples))


def headline_of_env(samples: Samples, roles: Sequence[Role]) -> str:
    """Return the sentence and the lines of the policies that play one env."""
    names = _ranked(roles)
    main_quantity = what_counts(samples)
    quantity = noun(main_quantity)
    best, tied = best_of(samples, names)
    leader = f"Env {roles[0].env}: {best}"
    if any(role.learns for role in roles):
        group_text = "policies that learn"
    else:
        group_text = "policies played, none of which learns"
    if len(names) > 1:
        sentence = f"{leader} has the least {quantity} of the {len(names)} {group_text}"
    elif len(roles) > 1:
        sentence = f"{leader} is the only policy that learns"
    else:
        sentence = f"{leader} is the only policy played"
    groups = (*_COMMON_RIVALS, _RIVALS_BY_ENV.get(roles[0].env, ()))
    rival_names = [
        next((name for name in group if name in samples[main_quantity] and name != best), None)
        for group in groups
    ]
    rivals = {name: DESCRIPTIONS[name] for name in rival_names if name is not None}
    # Without one that a reader knows, the best is compared with the one that costs most.
    if not rivals and len(roles) > 1:
        other_names = [role.policy for role in roles if role.policy != best]
        costliest = max(other_names, key=lambda name: float(samples[main_quantity][name].mean()))
        if len(other_names) > 1:
            rivals = {costliest: f"{costliest}, which has the most {quantity} of the others"}
        else:
            rivals = {costliest: costliest}
    if tied:
        sentence += f", tied with {listed(tied)}"
    return "\n".join(
        [f"{sentence}.", *(f"  {line}" for line in compared_with(samples, best, rivals))]
    )


def _ranked(roles: Sequence[Role]) -> list[str]:
    """Return the policies that learn, or all policies if none learns."""
    learners = [role.policy for role in roles if role.learns]
    return learners or [role.policy for role in roles]


def _side(ratio: float, fine: bool = False) -> str:
    """Say how far a ratio is from 1, and on which side."""
    if ratio < 1.0:
        return f"{_percent(ratio, fine)} % less"
    return f"{_percent(ratio, fine)} % more"


def _percent(ratio: float, fine: bool = False) -> str:
    """Say how far a ratio is from 1 in percent, with a decimal where it is near or ``fine``.

    Example:
        >>> _percent(1.0519), _percent(0.403), _percent(12.5), _percent(0.004), _percent(1.0001)
        ('5.2', '60', '1,150', '99.6', 'under 0.1')
    """
    share = 100.0 * abs(ratio - 1.0)
    if 0.0 < share < 0.05:
        return "under 0.1"
    # From 99 to 100 % a decimal is needed, or 99.6 % less would be 100 % less.
    if share >= 9.95 and not (fine or 99.0 < share < 100.0):
        return f"{share:,.0f}"
    return f"{share:,.1f}".removesuffix(".0")
