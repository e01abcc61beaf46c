"""Streams of tasks, as schedulers of tasks record them: who ran which task when."""
