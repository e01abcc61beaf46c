"""LB-BSP: loads in proportion to predicted speeds, its predictors, and its variants."""
