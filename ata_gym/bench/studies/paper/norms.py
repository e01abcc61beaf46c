"""The constants that the paper published for a scenario, beside its workers' psi1 norms."""

import numpy as np

from ata_gym.scenarios import Scenario


def beside_norms(scenario: Scenario) -> str:
    """Compare the published alpha and eta with the psi1 norms that they should bound.

    Returns:
        A sentence that says for how many workers each lies below, and where norms are infinite.
    """
    norms = scenario.pool.psi1_norm()
    finite = np.isfinite(norms)
    clauses = []
    published = scenario.published.preprint
    for name, norm_name, unit in (
        ("alpha", "norm", 1.0),
        ("eta", "norm / mean", scenario.pool.mean()[finite]),
    ):
        bound = getattr(published, name)
        true_values = norms[finite] / unit
        # a bound that is equal up to rounding holds
        count_below = int((true_values > bound * (1 + 1e-9)).sum())
        if count_below:
            relation = f"lies below the psi1 {norm_name} of {count_below} of {len(norms)} workers"
        else:
            relation = f"bounds each finite psi1 {norm_name}"
        clauses.append(f"{name} = {bound:,.6g} {relation} (up to {true_values.max():,.5g})")
    if not finite.all():
        heavy = np.array(scenario.pool.families)[~finite].tolist()
        families = ", ".join(sorted({*heavy}))
        clauses.append(
            f"the psi1 norm of {(~finite).sum()} workers ({families}) is infinite, so that no"
            " guarantee applies",
        )
    return f"{scenario.name}: {'; '.join(clauses)}."
