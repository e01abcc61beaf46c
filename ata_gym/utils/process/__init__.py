"""The process: its signals and its output, and the machine that it runs on."""
