"""From scores to an allocation: the proxy loss of the ATA paper and the beta rule."""
