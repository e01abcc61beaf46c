"""Policies around abrupt changes: delays, tables and the picture of a change.

The command ``track`` imports from here.
"""
