"""The site that ``make docs`` builds.

``reference`` renders modules with pdoc, ``pages`` what has a name (envs, policies, scenarios,
commands), ``guides`` the project's Markdown and notebooks; ``search`` makes the index, and
``links`` checks that every link leads somewhere.
"""
