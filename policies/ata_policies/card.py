"""The card of a policy, and what the theory of ATA adds to the card of a scenario."""

import numpy as np

from ata_gym.scenarios import Scenario
from ata_gym.scenarios.card import Card, scenario_card
from ata_gym.theory.lower_bound import regret_lower_bound
from ata_policies.allocation.estimates.ata import Ata, AtaEmpirical
from ata_policies.facts import joined_facts
from ata_policies.presets import Preset
from ata_policies.registry import default_name, full_name, load, parse, short_name
from ata_policies.setting import Setting


def policy_card(name: str) -> Card:
    """Return the card of a policy.

    Args:
        name: Its name, as for ``load``, with the same errors.

    Raises:
        ValueError: If there is no such policy.

    Example:
        >>> card = policy_card("thompson-beta")
        >>> card.facts["plays"], card.facts["made of"]
        ('allocation', 'estimate thompson-gamma, memory everything, rule beta')
        >>> policy_card("thompson:memory=window").facts["for workers that change"]
        'yes'
    """
    name = full_name(name)
    policy = load(name)
    hyperparameters = parse(name)[1]
    plays = short_name(policy.env_id)
    parts = policy.parts_for(**hyperparameters)
    described = parts
    preset: dict[str, object] = {}
    if isinstance(policy, Preset):
        preset = dict(policy.hyperparameters)
        # A part of another name than the preset's says other things of itself.
        if not hyperparameters.keys() & {"estimate", "memory", "rule"}:
            described = policy.parts
    env_text = plays
    if default_name(policy.env_id) == name:
        env_text += ", where it is the default"
    made_of = [f"{key} {value}" for key, value in (preset | hyperparameters).items()]
    looks_at_price = "no"
    if policy.priced:
        looks_at_price = "yes"
    follows_changes = "no"
    if any(part.nonstationary for part in described):
        follows_changes = "yes"
    facts = {
        "plays": env_text,
        "made of": ", ".join(made_of),
        "must know beforehand": joined_facts(parts, "knows"),
        "assumes": joined_facts(described, "assumes"),
        "constants": joined_facts(described, "constants"),
        "unit of time": joined_facts(parts, "time_unit"),
        "looks at the price": looks_at_price,
        "for workers that change": follows_changes,
        "source": joined_facts(described, "source"),
    }
    summary = policy.summary()
    text = policy.documentation().removeprefix(summary).strip()
    compared_policies, rounds = _COMPARED_WITH[plays]
    policies = ",".join(dict.fromkeys((*compared_policies, name)))
    command = (
        f"ata-gym bench --scenario icml2025-cifar100 --rounds {rounds} --policies {policies} --out"
        " results/try"
    )
    return Card(name, summary, {name: fact for name, fact in facts.items() if fact}, text, command)


def full_scenario_card(scenario: Scenario) -> Card:
    """Return the card of a scenario, with what the theory of ATA says of it.

    The theory says something where workers stay as they are, with finite means.

    Example:
        >>> from ata_gym.scenarios import scenario
        >>> full_scenario_card(scenario("icml2025-cifar100")).facts["uniform phase"][:73]
        'all scores 0 to about round: ata 23,835, some to 2,644,440; ata-empirical'
    """
    card = scenario_card(scenario)
    pool = scenario.pool
    if not scenario.stationary or not np.isfinite(pool.mean()).all():
        return card
    if pool.latency is not None:
        promise = "none: the theorems hold for rounds without latency"
        return card._replace(facts={**card.facts, "ATA's guarantee": promise})
    setting = Setting.from_scenario(scenario)
    phases = []
    for ending, version in (("", "preprint"), ("-icml", "icml")):
        for name, kind in (("ata", Ata), ("ata-empirical", AtaEmpirical)):
            round_of_all, round_of_some = kind(version=version).uniform_phase(setting)
            phase = f"{name}{ending} {round_of_all:,}"
            if round_of_some > round_of_all:
                phase += f", some to {round_of_some:,}"
            phases.append(phase)
    try:
        guarantees = (
            (version, Ata(version=version).guarantee(setting)) for version in ("icml", "preprint")
        )
        promise = "; ".join(
            f"{version}: {guarantee.statement}" for version, guarantee in guarantees
        )
    except ValueError as error:
        # Nothing is proved for heavy tails.
        promise = str(error)
    facts = {
        "uniform phase": f"all scores 0 to about round: {'; '.join(phases)}",
        "ATA's guarantee": promise,
        "proxy regret": regret_lower_bound(pool, scenario.budget).statement,
    }
    return card._replace(facts={**card.facts, **facts})


_COMPARED_WITH = {
    "allocation": (("uta", "ata-icml"), 2000),
    "race": (("gta",), 2000),
    "dispatch": (("dispatch-gta",), 200),
}
"""For each env, policies to compare with, and a number of rounds that takes a few seconds."""
