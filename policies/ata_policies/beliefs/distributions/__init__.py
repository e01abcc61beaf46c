"""What is known of the whole distribution of each worker's task times.

Counts in bins, with samples of the estimated distribution.
"""
