"""Helpers without allocation: compiled loops, checks of arguments, optional packages, files."""
