"""The constants that the paper published for a scenario, beside the psi1 norms of its workers."""

import numpy as np

from ata_gym.scenarios import Scenario


def beside_norms(scenario: Scenario) -> str:
    """Which of the published alpha and eta lie below the psi1 norms that they should bound, and which are infinite."""
    norms = scenario.pool.psi1_norm()
    finite, said, published = np.isfinite(norms), [], scenario.published.preprint
    for name, what, unit in (("alpha", "norm", 1.0), ("eta", "norm / mean", scenario.pool.mean()[finite])):
        bound, true = getattr(published, name), norms[finite] / unit
        below = int((true > bound * (1 + 1e-9)).sum())
        fails = f"lies below the psi1 {what} of {below} of {len(norms)} workers"
        how = fails if below else f"bounds each finite psi1 {what}"
        said.append(f"{name} = {bound:,.6g} {how} (up to {true.max():,.5g})")
    if not finite.all():
        heavy = ", ".join(sorted({*np.array(scenario.pool.families)[~finite].tolist()}))
        said.append(f"that of {(~finite).sum()} workers ({heavy}) is infinite, so that no guarantee applies")
    return f"{scenario.name}: {'; '.join(said)}."
