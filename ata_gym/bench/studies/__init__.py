"""Experiments with a question of their own, each with its tables, pictures and page."""
