"""The card of a policy."""

from ata_gym.scenarios.card import Card
from ata_policies.presets import Preset
from ata_policies.registry import default_name, load, parse, short_name


def policy_card(name: str) -> Card:
    """The card of a policy, which is named as for ``load``, with the same errors.

    >>> card = policy_card("thompson-beta")
    >>> card.facts["plays"], card.facts["made of"]
    ('allocation', 'estimate thompson-gamma, memory everything, rule beta')
    """
    policy, named = load(name), parse(name)[1]
    plays = short_name(policy.env_id)
    preset = dict(policy.hyperparameters) if isinstance(policy, Preset) else {}
    facts = {
        "plays": plays + ", where it is the default" * (default_name(policy.env_id) == name),
        "made of": ", ".join(f"{key} {value}" for key, value in (preset | named).items()),
        "must know beforehand": policy.knows,
        "assumes": policy.assumes,
        "constants": policy.constants,
        "looks at the price": "yes" if policy.priced else "no",
        "for workers that change": "yes" if policy.nonstationary else "no",
        "source": policy.source,
    }
    summary = policy.summary()
    text = policy.documentation().removeprefix(summary).strip()
    beside, rounds = _BESIDE[plays]
    players = ",".join(dict.fromkeys((*beside, name)))
    command = f"ata-gym bench --scenario icml2025-cifar100 --rounds {rounds} --policies {players} --out results/try"
    return Card(name, summary, {name: fact for name, fact in facts.items() if fact}, text, command)


_BESIDE = {
    "allocation": (("uta", "ata-icml"), 2000),
    "race": (("gta",), 2000),
    "dispatch": (("dispatch-gta",), 200),
}
"""For each env, policies to compare with, and a number of rounds that takes a few seconds."""
