"""Commands that play policies, and leave tables and pictures in a results folder.

The room ``cli`` makes them commands; among themselves they share what ``bench`` and ``train`` do.
"""
