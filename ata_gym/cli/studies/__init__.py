"""Commands that play policies, and leave tables and pictures in a results folder."""
