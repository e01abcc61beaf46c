"""Rounds on the actors of a Ray cluster, decided by a policy (``runner``) or by an agent's actions (``backend``).

``ata_gym.cluster`` takes the names that users type from here; nothing else is imported from outside.
"""
