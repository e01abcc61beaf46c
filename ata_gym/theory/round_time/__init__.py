"""The expected round time of an allocation, exact or by quadrature.

``expected_round_time`` is the function to import; the other files are its parts.
"""
