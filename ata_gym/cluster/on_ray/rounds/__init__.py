"""Rounds on the actors of a Ray cluster.

They are decided by a policy (``runner``) or by an agent's actions (``backend``).
"""
