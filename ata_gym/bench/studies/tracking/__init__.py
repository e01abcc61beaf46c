"""Policies around abrupt changes: delays, tables and the picture of a change."""
