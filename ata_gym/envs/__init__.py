"""The Gymnasium environments: allocation, race and dispatch, with their spaces.

Each is a single env and a native vector env. ``gymnasium.make`` finds the env classes by their ids.
"""
