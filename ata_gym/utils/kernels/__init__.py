"""What kernels need around their machine code: a cache on disk, and threads to share rows out to.

Import kernels' decorators from ``ata_gym.utils.compiled``, and ``threads`` from ``ata_gym``.
"""
