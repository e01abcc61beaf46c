"""The report page: one HTML file with everything that a results folder holds, which needs no network.

A study notes what it is in its folder (``note``) and makes a ``Page`` of sections; ``write`` sets it with the template,
the style and the scripts of ``assets``.
"""
