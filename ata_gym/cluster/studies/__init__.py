"""Studies of real processes on one machine, whose unequal speeds are emulated: they wait where others would compute.

The command ``ata-gym emulate`` takes them from here; nothing else is imported from outside.
"""
