"""Modules that are loaded late, and calls that wait until another package is loaded."""
