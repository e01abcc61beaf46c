"""The runner plays experiments, in one process or several, and goes on where it was killed."""
