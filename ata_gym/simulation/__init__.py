"""One round for a batch of rows: keyed noise and compiled loops over arrays."""
