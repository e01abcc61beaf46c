"""Rounds on the actors of a Ray cluster, decided by a policy (``runner``) or by an agent's actions (``backend``)."""
