"""The training of agents of Stable-Baselines3 and sb3-contrib, and the report on it."""
