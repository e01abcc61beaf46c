"""The Gymnasium environments: allocation, race and dispatch, each single and vector, with their spaces and wrappers.

``gymnasium.make`` finds the env classes by their ids. Import the wrappers from ``ata_gym.envs.wrappers`` and the spaces
from ``ata_gym.envs.spaces``; this room imports scenarios and the rooms below them.
"""
