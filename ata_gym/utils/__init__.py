"""Helpers that have nothing to do with allocation: compiled loops, checks of arguments, optional packages, files."""
