"""The cache of compiled kernels on disk."""
