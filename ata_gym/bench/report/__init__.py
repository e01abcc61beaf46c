"""What records of runs say: statistics, tables and pictures, in one style.

All studies and the training room import from here.
"""
