"""The Gymnasium environments: allocation, race and dispatch, each single and vector, with their spaces.

``gymnasium.make`` finds the env classes by their ids.
"""
