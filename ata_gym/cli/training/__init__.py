"""Commands that train: a model on allocated tasks, an agent that allocates, and the learned policies of the zoo."""
