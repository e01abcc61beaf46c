"""What works on this machine: packages, kernels, devices, process groups and Ray, and what to install for the rest.

The command ``ata-gym doctor`` shows what ``examination.examine`` finds. ``python -m ata_gym.cluster.doctor`` prints the
same as plain lines; it needs the base packages alone.
"""
