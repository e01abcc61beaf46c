"""The site that ``make docs`` builds with Sphinx.

``build`` gathers what Sphinx reads: ``sources`` copies the project's Markdown and notebooks,
``named`` writes a page for each env and the cards, ``modules`` a page for each module; the pages
of ``pages/`` list them. ``conf`` is Sphinx's configuration, ``extension`` what Sphinx lacks.
"""
