"""The site that ``make docs`` builds with Sphinx: ``python -m docs FOLDER``.

``sources`` puts together what Sphinx reads: the pages of ``pages/``, which list all others, the
project's Markdown and notebooks, and what ``cards`` writes from the registries. ``conf`` is the
configuration of Sphinx, with the little that it lacks.
"""
