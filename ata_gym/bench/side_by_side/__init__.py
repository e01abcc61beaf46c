"""Policies side by side on the same workers: what each round looks like, as a picture and as an animation."""
