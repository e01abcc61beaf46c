"""From the rows of a table to a log: which columns they are, and which rows count."""

from ata_gym.bench.logs.tables.meaning.rows_to_log import log_of

__all__ = ["log_of"]
