"""What agents of RL libraries see and do: features of workers, shares, one task at a time, masks, rewards in a unit.

The single and the vector envs import ``Interface``; this part of the envs imports the spaces, utils and typing.
"""
