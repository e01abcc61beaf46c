"""Policies that decide by a network over workers, which was trained before."""
