"""Policies on a fixed, versioned set of scenarios: what is played, ranking, tables, picture."""
