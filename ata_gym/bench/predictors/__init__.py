"""How well LB-BSP's predictors foresee the speeds of workers.

The command ``predictors`` imports from here.
"""
