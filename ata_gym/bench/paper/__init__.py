"""The published figures, and ours beside them: end points, lines of the loss, and the proxy regret."""
