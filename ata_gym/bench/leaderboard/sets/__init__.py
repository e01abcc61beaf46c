"""The sets of scenarios of the leaderboard, each fixed and with a version."""
