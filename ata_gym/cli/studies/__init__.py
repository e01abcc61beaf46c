"""Commands that play policies or train them, and leave tables and pictures in a results folder."""
