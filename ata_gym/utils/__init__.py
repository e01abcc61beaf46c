"""Helpers that know nothing of the problem: compiled loops, checks of arguments, optional packages, files, trees.

Every room may import from here; this room imports nothing of the project but ``ata_gym.typing``.
"""
