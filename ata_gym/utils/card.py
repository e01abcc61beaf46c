"""A card describes one scenario or policy, for terminals, reports and the API reference alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Card(NamedTuple):
    """The description of one scenario or policy.

    >>> card = Card("ata", "A policy.", {"plays": "allocation"}, "More on it.", "ata-gym bench --policies ata")
    >>> card.to_data()["facts"]
    {'plays': 'allocation'}
    """

    name: str
    summary: str  # one sentence
    facts: Mapping[str, str]  # facts by their names, in the order in which they are read
    text: str  # paragraphs with formulas below the facts; may be empty
    command: str  # the command that tries it

    def to_data(self) -> dict[str, Any]:
        """Return the card as values that JSON can hold."""
        return {**self._asdict(), "facts": dict(self.facts)}
