"""Checks of a policy of one's own: it is played, and each fault gets a sentence."""
