"""Checks of what works on this machine: packages, kernels, devices, process groups and Ray.

``python -m ata_gym.cluster.doctor`` prints it as plain lines, and needs the base packages alone.
"""
