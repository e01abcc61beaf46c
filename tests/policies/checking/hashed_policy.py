"""A policy that another process plays otherwise; that process must be able to import it."""

from typing import Any

import numpy as np

from ata_policies import State
from tests.policies.checking.faulty_policies import Sound


class ByHashes(Sound):
    """Prefers workers by the hashes of their names."""

    def scores(self, state: State) -> Any:
        hashes = [hash(f"worker {i}") % 1000 for i in range(self.setting.n)]
        return (1.0 + np.array(hashes)) * super().scores(state)


class Prints(Sound):
    """Prints in each round: keeps every rule."""

    def scores(self, state: State) -> Any:
        print("scores of", len(state.round), "rows")
        return super().scores(state)
