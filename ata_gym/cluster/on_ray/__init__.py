"""Work on a Ray cluster: rounds whose tasks actors compute, and sweeps whose jobs its nodes play.

``ata_gym.cluster`` takes the runner from here, and the commands take the sweeps; nothing else is imported from outside.
"""
