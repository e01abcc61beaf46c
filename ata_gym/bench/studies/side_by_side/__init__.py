"""Policies side by side on the same workers: each round as a picture and as an animation."""
