"""How the defaults decide: what is known, where to search, the search, who is tried, and when the next plan is due."""
