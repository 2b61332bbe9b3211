"""What every test begins with."""

from __future__ import annotations

import pytest
from torch.distributions import Distribution


@pytest.fixture(autouse=True)
def distributions_check_their_values() -> None:
    """torch's compiler turns this off for good, for whatever runs after it in the process."""
    Distribution.set_default_validate_args(True)
