"""The card of a policy, and what ATA does in a scenario for the card of that."""

import numpy as np

from ata_gym.scenarios import Scenario
from ata_gym.scenarios.card import Card, scenario_card
from ata_policies.allocation.estimates.ata import Ata, AtaEmpirical
from ata_policies.facts import together
from ata_policies.presets import Preset
from ata_policies.registry import default_name, full_name, load, parse, short_name
from ata_policies.setting import Setting


def policy_card(name: str) -> Card:
    """The card of a policy, which is named as for ``load``, with the same errors.

    >>> card = policy_card("thompson-beta")
    >>> card.facts["plays"], card.facts["made of"]
    ('allocation', 'estimate thompson-gamma, memory everything, rule beta')
    """
    name = full_name(name)
    policy, named = load(name), parse(name)[1]
    plays = short_name(policy.env_id)
    parts = policy.made_of(**named)
    preset = dict(policy.hyperparameters) if isinstance(policy, Preset) else {}
    facts = {
        "plays": plays + ", where it is the default" * (default_name(policy.env_id) == name),
        "made of": ", ".join(f"{key} {value}" for key, value in (preset | named).items()),
        "must know beforehand": together(parts, "knows"), "assumes": policy.assumes, "constants": policy.constants,
        "unit of time": together(parts, "time_unit"),
        "looks at the price": "yes" if policy.priced else "no",
        "for workers that change": "yes" if policy.nonstationary else "no", "source": policy.source,
    }  # fmt: skip
    summary = policy.summary()
    text = policy.documentation().removeprefix(summary).strip()
    beside, rounds = _BESIDE[plays]
    players = ",".join(dict.fromkeys((*beside, name)))
    command = f"ata-gym bench --scenario icml2025-cifar100 --rounds {rounds} --policies {players} --out results/try"
    return Card(name, summary, {name: fact for name, fact in facts.items() if fact}, text, command)


def full_scenario_card(scenario: Scenario) -> Card:
    """The card of a scenario, with what the theory of ATA says of it where workers stay as they are, with finite means.

    >>> from ata_gym.scenarios import scenario
    >>> full_scenario_card(scenario("icml2025-cifar100")).facts["uniform phase"][:73]
    'all scores 0 to about round: ata 23,835, some to 2,644,440; ata-empirical'
    """
    card, pool = scenario_card(scenario), scenario.pool
    if not scenario.stationary or not np.isfinite(pool.mean()).all():
        return card
    setting, phases = Setting.in_scenario(scenario), []
    for ending, version in (("", "preprint"), ("-icml", "icml")):
        for name, kind in (("ata", Ata), ("ata-empirical", AtaEmpirical)):
            every, some = kind(version=version).uniform_phase(setting)
            phases.append(f"{name}{ending} {every:,}" + f", some to {some:,}" * (some > every))
    try:
        made = ((version, Ata(version=version).guarantee(setting)) for version in ("icml", "preprint"))
        promise = "; ".join(f"{version}: {guarantee.statement}" for version, guarantee in made)
    except ValueError as error:  # heavy tails
        promise = str(error)
    facts = {"uniform phase": f"all scores 0 to about round: {'; '.join(phases)}", "ATA's guarantee": promise}
    return card._replace(facts={**card.facts, **facts})


_BESIDE = {"allocation": (("uta", "ata-icml"), 2000), "race": (("gta",), 2000), "dispatch": (("dispatch-gta",), 200)}
"""For each env, policies to compare with, and a number of rounds that takes a few seconds."""
