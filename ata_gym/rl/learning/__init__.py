"""Training agents of Stable-Baselines3 and sb3-contrib, with evaluations on other seeds, and the report on it."""
