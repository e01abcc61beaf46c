"""A results folder: whose it is, what is in it, which code made it, and what a page must know."""
