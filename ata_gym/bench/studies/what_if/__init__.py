"""What stragglers cost in a job whose times are known, and what other shares would give."""
