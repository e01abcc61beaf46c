"""Commands that play or train policies, and leave tables and pictures in a results folder."""
