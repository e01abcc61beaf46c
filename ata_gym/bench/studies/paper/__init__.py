"""The published figures, and ours beside them: end points, lines of the loss, proxy regret."""
