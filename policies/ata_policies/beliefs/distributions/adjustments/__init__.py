"""What is divided out of the times of a round before workers are compared."""
