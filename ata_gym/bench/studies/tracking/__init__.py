"""Policies around abrupt changes: delays, tables, the picture of a change, and a page."""
