"""What kernels need around their machine code: a cache on disk, and threads to share rows out to."""
