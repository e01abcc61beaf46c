"""The zoo on a fixed, versioned set of scenarios: who plays what, ranking, tables, picture."""
