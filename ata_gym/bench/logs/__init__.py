"""The times of the workers of a job, from the logs that its tools left.

``read_log`` recognises the format of a file or folder; ``formats.FORMATS`` lists all of them.
"""

from ata_gym.bench.logs.log import Log
from ata_gym.bench.logs.reading import read_log

__all__ = ["Log", "read_log"]
