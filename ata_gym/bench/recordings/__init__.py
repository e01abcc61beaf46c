"""Clean traces from recorded data of any form.

The studies and the command ``trace`` import from here.
"""
