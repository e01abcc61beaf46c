"""The expected round time of an allocation, exact or by quadrature."""
