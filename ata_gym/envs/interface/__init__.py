"""The observations, actions and rewards that agents of RL libraries can have."""
