"""The state of the rows of an env, how they take their steps, and what runs the tasks."""
