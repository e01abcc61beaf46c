"""The constants that the paper published for a scenario, beside the psi1 norms of its workers."""

import numpy as np

from ata_gym.scenarios import Scenario


def beside_norms(scenario: Scenario) -> str:
    """Which of the published alpha and eta lie below the psi1 norms that they should bound.

    >>> from ata_gym.scenarios import scenario
    >>> beside_norms(scenario("icml2025-regret"))[:83]
    'icml2025-regret: alpha = 40 lies below the psi1 norm of 10 of 20 workers (up to 80)'
    """
    norms, said = scenario.pool.psi1_norm(), []
    ratios, finite = norms / scenario.pool.mean(), np.isfinite(norms)
    bounds = zip(("alpha", "eta"), scenario.published.preprint, ("norm", "norm / mean"), (norms, ratios), strict=True)
    for name, bound, what, true in bounds:
        if bound is not None:
            below, most = int((true[finite] > bound * (1 + 1e-9)).sum()), true[finite].max()
            of = f"{below} of {len(norms)} workers" if below else "no worker of a finite one"
            said.append(f"{name} = {bound:,.6g} lies below the psi1 {what} of {of} (up to {most:,.4g})")
    if not finite.all():
        heavy = ", ".join(sorted({*np.array(scenario.pool.families)[~finite].tolist()}))
        said.append(f"that of {(~finite).sum()} workers ({heavy}) is infinite, so that no guarantee applies")
    return f"{scenario.name}: {'; '.join(said)}."
