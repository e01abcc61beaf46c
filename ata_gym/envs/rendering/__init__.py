"""How the envs show a round: as text, as an array of pixels, or in a window.

An env that is made without ``render_mode`` records nothing. Matplotlib and pygame are loaded where
pixels and windows are made.
"""
