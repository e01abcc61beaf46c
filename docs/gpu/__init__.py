"""``python -m docs.gpu``: run the tests that need a GPU, and list their outcomes."""
