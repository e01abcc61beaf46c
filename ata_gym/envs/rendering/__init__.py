"""How the envs show a round: what each worker did when, as text, as an array of pixels, or in a window.

The envs hold a ``Renderer``, and their interface a ``Recorder``; neither exists where an env is made without
``render_mode``. This room imports the scenarios and the rooms below them; matplotlib and pygame are imported where
pixels and windows are made.
"""
