"""``python -m docs.gpu``: the tests that need a GPU, one after the other, and what came of each in a table."""
