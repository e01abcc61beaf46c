"""Methods whose updates use gradients at earlier weights: asynchronous SGD, Ringmaster ASGD, SSP and R2SP.

Methods are found by name in ``ata_gym.training.methods.METHODS``.
"""
