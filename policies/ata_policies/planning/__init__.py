"""How the default policies decide.

What is known, where to search, the search, who is tried, and when the next plan is due.
"""
