"""How the defaults decide: what is known, where to search, the search, and who is tried."""
