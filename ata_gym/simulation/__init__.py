"""One round for a batch of rows: keyed noise and compiled loops, arrays in and arrays out, without Gymnasium.

The rooms above import the functions of ``rounds``, ``dispatch`` and ``keys``; this room imports pools and utils.
"""
