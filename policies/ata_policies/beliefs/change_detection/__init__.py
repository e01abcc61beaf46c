"""Memories that notice a change and start anew."""
