"""Problems: the contract of what is trained, and the problems that come with the package."""
