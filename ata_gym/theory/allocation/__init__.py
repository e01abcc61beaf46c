"""From scores to an allocation: the proxy loss of the ATA paper, the beta rule, and hindsight."""
