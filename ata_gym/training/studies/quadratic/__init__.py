"""The quadratic of the ATA paper: its rounds as a compiled loop, and the figure."""
