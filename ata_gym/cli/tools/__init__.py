"""Commands for what is a user's own: a policy, recorded data, workers, results.

The room ``cli`` makes them commands.
"""
