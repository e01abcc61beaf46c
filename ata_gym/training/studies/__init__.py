"""Studies of training: one trajectory on the clocks of policies, methods beside the policies, the paper's quadratic."""
