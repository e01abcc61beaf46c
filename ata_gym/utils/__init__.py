"""Helpers that know nothing of the problem: compiled loops, checks of arguments, optional packages, files, trees."""
