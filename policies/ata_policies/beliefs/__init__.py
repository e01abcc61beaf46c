"""What policies remember of the workers.

Counts, moments, windows, discounts, change detection, whole distributions, and availability.
"""
