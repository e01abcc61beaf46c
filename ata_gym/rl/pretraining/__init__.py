"""How the learned policies of the zoo are trained: on workers drawn at random, before any of them is met.

It needs the extra ``train``.
"""

from ata_gym.utils.extras import require

require("torch", extra="train", purpose="The training of a policy")
