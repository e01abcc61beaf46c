"""Policies that decide at each completion who starts one more task."""
