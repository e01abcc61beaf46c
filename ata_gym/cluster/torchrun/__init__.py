"""Allocation inside ``torch.distributed``: every rank runs the same policy on the same times, without a coordinator."""
