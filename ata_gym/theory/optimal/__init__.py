"""The allocation of least expected cost, with a proof or a gap by which it may cost more."""
