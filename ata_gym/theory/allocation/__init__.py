"""From scores to an allocation: the proxy loss of the ATA paper and the beta rule.

Policies import ``allocate`` and ``allocate_by_cost`` from here.
"""
