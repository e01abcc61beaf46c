"""A card: what there is to say of one scenario or policy, for terminals, reports and the API reference alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple


class Card(NamedTuple):
    """What there is to say of one thing that has a name.

    >>> card = Card("ata", "A policy.", {"plays": "allocation"}, "More on it.", "ata-gym bench --policies ata")
    >>> card.to_data()["facts"]
    {'plays': 'allocation'}
    """

    name: str
    summary: str
    """One sentence."""
    facts: Mapping[str, str]
    """In the order in which they are read."""
    text: str
    """Paragraphs below the facts, with formulas; may be empty."""
    command: str
    """What to type to try it."""

    def to_data(self) -> dict[str, Any]:
        """As JSON can hold it."""
        return {**self._asdict(), "facts": dict(self.facts)}
