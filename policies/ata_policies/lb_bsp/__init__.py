"""LB-BSP: loads in proportion to predicted speeds, its predictors, and its variants.

Presets import from here; it imports allocation, policy and beliefs.
"""
