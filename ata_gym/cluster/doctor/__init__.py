"""What works on this machine: packages, kernels, devices, process groups and Ray, and what to install for the rest.

``python -m ata_gym.cluster.doctor`` prints it as plain lines, and needs the base packages alone.
"""
