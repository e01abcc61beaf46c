"""What agents of RL libraries see and do: features of workers, shares, one task at a time, masks, rewards in a unit."""
