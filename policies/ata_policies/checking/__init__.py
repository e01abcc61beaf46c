"""Checks of a policy of one's own: it is played, and each fault gets a sentence.

``check_policy`` and ``examine`` are the functions to import, from ``check``.
"""
