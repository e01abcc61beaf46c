"""The API reference: what ``make docs`` builds from docstrings, scenarios, policies and commands.

Nothing is written here by hand but the form: ``reference`` renders modules with pdoc, ``pages`` all other pages.
"""
