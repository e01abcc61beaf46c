"""What stragglers cost in a job of which the times are known, and what another way to share its work would give."""
