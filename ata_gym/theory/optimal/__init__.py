"""The allocation of least expected cost, with a proof or a certified gap."""
