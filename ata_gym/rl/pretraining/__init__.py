"""The training of the learned policies of the zoo, on workers that are drawn at random.

It needs the extra ``train``.
"""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="The training of a policy")
