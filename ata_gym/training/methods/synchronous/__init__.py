"""Methods whose updates use only gradients at the current weights: Rennala SGD, minibatches, MindFlayer SGD.

Methods are found by name in ``ata_gym.training.methods.METHODS``.
"""
