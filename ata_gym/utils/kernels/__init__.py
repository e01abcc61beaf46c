"""The cache of compiled kernels on disk, and the threads that run them."""
