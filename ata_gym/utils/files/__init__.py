"""Files: written whole, read with a check of their content, and with errors of one sentence."""
