"""The figures of the ATA paper that need training: its quadratic, and its network on CIFAR-100."""
