"""Commands that train: a model on allocated tasks, an agent that allocates, and the learned policies of the zoo.

The room ``cli`` makes them commands; the demo and the reproduction of the paper use ``train``.
"""
