"""Commands that list what there is, as a table."""
