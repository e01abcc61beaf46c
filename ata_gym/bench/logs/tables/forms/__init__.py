"""The forms that tables have in files, one module each: what is read becomes a data frame."""


class NoTableError(ValueError):
    """A file that can be read, and is no table: in a folder it is passed over."""
