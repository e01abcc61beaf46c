"""Work on a Ray cluster: rounds whose tasks actors compute, and sweeps whose jobs its nodes play.

``ata_gym.cluster`` takes names from ``rounds`` and ``connection``, the commands take ``sweeps`` and ``connection``.
"""
