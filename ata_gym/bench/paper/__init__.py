"""The published figures and end points, and ours beside them."""
