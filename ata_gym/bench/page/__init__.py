"""The report page: one HTML file that shows a results folder and needs no network.

A study notes what it is in its folder (``note``), and makes a ``Page`` of sections. ``write`` makes
the HTML of it, with the template, the style and the scripts of ``assets``.
"""
