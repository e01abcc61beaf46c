"""Training agents of Stable-Baselines3 and sb3-contrib, with evaluations on other seeds; ``ata-gym learn`` runs it.

Import ``Learning`` from ``experiment``, ``learn`` from ``run`` and ``report`` from ``report``.
"""
