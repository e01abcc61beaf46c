"""Policies outside the envs: for loops that do real work, and for loops that ask what time it would be.

``ata_policies`` takes ``Allocator``, ``Dispatcher`` and ``Clock`` from here; nothing else is imported from outside.
"""
