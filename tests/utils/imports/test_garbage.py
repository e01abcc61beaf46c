"""Imports without a look for garbage."""

import gc

import pytest

from ata_gym.utils.imports.garbage import no_garbage


@pytest.mark.parametrize("is_on", [True, False])
def test_the_collector_is_off_inside_and_as_it_was_afterwards_also_after_an_error(is_on):
    before = gc.isenabled()
    (gc.enable if is_on else gc.disable)()
    try:
        with no_garbage():
            assert not gc.isenabled()
        assert gc.isenabled() == is_on
        with pytest.raises(ImportError), no_garbage():
            raise ImportError
        assert gc.isenabled() == is_on
    finally:
        (gc.enable if before else gc.disable)()
