"""The allocation of least expected cost, with a proof or a certified gap.

``optimal_allocation`` is the function to import; the other files are its parts.
"""
