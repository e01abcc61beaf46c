"""Problems: the contract of what is trained, and the problems that come with the package.

The trainer imports the contract; users import a problem or write their own.
"""
