"""What policies remember: counts, moments, windows, discounts, change detection, whole distributions, availability.

The rooms of policies import from here; beliefs import the core alone.
"""
