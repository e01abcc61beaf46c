"""What ranks send of gradients while it is not known whether all of them have one layout."""

from collections.abc import Collection, Sequence

import torch
from torch import Tensor, nn

from ata_gym.cluster.torchrun.buffers.buffer_sums import BufferSums
from ata_gym.cluster.torchrun.forms import AgreedLayout, Form, GradientLayout
from ata_gym.cluster.torchrun.gradients.buckets import Buckets, gradient_forms
from ata_gym.cluster.torchrun.ranks.ranks import Ranks
from ata_gym.typing import Floats


def layout_of(
    parameters: Sequence[Tensor], sparse_weights: Collection[nn.Module]
) -> GradientLayout:
    """The layout of the gradients of parameters, of which some are trained.

    Args:
        parameters: The parameters of a model.
        sparse_weights: The modules whose ``weight`` has a sparse gradient.
    """
    places = [place for place, parameter in enumerate(parameters) if parameter.requires_grad]
    trained = [parameters[place] for place in places]
    identities = {id(module.weight) for module in sparse_weights}
    sparse = [place for place, parameter in enumerate(trained) if id(parameter) in identities]
    return GradientLayout(tuple(places), tuple(gradient_forms(trained)), tuple(sparse))


class Layouts:
    """The layout that all ranks had last, and the layout of this rank.

    The sums of all ranks must have the same length, and a rank whose parameters have changed does
    not know whether the parameters of the other ranks have, too. So it first sends zeros in the
    layout that all had last, with its message, which says what it has now. Where all have changed
    alike, they sum once more; otherwise all know that they differ.

    Args:
        ranks: The ranks.
        budget: The number B of tasks of a round.
        buffers: The buffers of this rank's models.
    """

    def __init__(self, ranks: Ranks, budget: int, buffers: BufferSums) -> None:
        self._ranks = ranks
        self._budget = budget
        self._buffers = buffers

    def extras(self, layout: GradientLayout) -> list[Form]:
        """The forms of what is summed with gradients of a layout.

        They are the buffers, the rows of each gradient that may be sparse, and one tensor with
        whether each parameter was reached, the flags of the buffers and the message.
        """
        forms = layout.forms
        if forms:
            device = forms[0].device
        else:
            device = self._ranks.device
        if forms and forms[0].dtype == torch.float64:
            dtype = torch.float64
        else:
            dtype = torch.float32
        extras = self._buffers.forms(dtype, device)
        for place in layout.sparse:
            form = forms[place]
            extras.append(Form((form.shape[0] + 1,), (1,), form.dtype, form.device))
        length = len(forms) + self._buffers.number_of_flags + self._ranks.length(self._budget)
        return [*extras, Form((length,), (1,), dtype, device)]

    def has_changed(self, checksum: int) -> bool:
        """Whether this rank's layout, of which this is the checksum, is not what all had last."""
        agreed = self._ranks.layout
        return agreed is not None and agreed.checksum != checksum

    def sum_zeros(self, message: Floats) -> Floats:
        """Sum zeros in the layout that all ranks had last, and a message of each rank, (m,)."""
        agreed = self._ranks.layout
        assert agreed is not None
        # As extras the forms have the order that they have as gradients.
        forms = [*reversed(agreed.gradients.forms), *self.extras(agreed.gradients)]
        buckets = Buckets([], forms, (), self._ranks)
        buckets.begin()
        numbers = torch.zeros(forms[-1].shape, dtype=torch.float64)
        numbers[-len(message) :] = torch.from_numpy(message)
        buckets.sum([torch.zeros(())] * (len(forms) - 1) + [numbers], settle=False)
        return buckets.sums[-1][-len(message) :].double().cpu().numpy()

    def agree(self, layout: GradientLayout, checksum: int) -> None:
        """Take note that all ranks have one layout now."""
        self._ranks.layout = AgreedLayout(layout, checksum)
