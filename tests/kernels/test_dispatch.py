"""Where work goes when the fast path cannot take it."""

from __future__ import annotations

import pytest
import torch

from softspin import kernels
from softspin.errors import SoftspinError, TooLargeError
from softspin.kernels import init_rng_state, plain

pytest.importorskip("numba", reason="numba is not installed here")


def test_a_machine_too_large_for_whole_numbers_goes_to_the_twin_unless_the_fast_path_was_named() -> None:
    """1,100 equal weights into one unit: their sum overflows 32-bit fixed point."""
    bias, weight = torch.zeros(1, 1102), torch.ones(1, 1100, 2)
    z, rng_state = torch.zeros(1, 3, 1102), init_rng_state(0, 1)
    got, _ = kernels.gibbs_sweeps(z, bias, weight, rng_state, 1)
    assert torch.equal(got, plain.gibbs_sweeps(z, bias, weight, rng_state, 1)[0])
    with pytest.raises(TooLargeError):
        kernels.gibbs_sweeps(z, bias, weight, rng_state, 1, implementation="cpu")


@pytest.mark.parametrize("schedule", [[1.5, -2.0], [0.3], [], [0.0, float("nan")]])
def test_annealing_refuses_what_is_no_path(schedule: list[float]) -> None:
    bias, weight = torch.zeros(1, 5, dtype=torch.float64), torch.zeros(1, 2, 3, dtype=torch.float64)
    with pytest.raises(SoftspinError, match="schedule"):
        kernels.anneal(bias, weight, bias, torch.tensor(schedule), 4, kernels.init_rng_state(0, 1))


def test_annealing_keeps_no_graph_of_parameters_that_require_gradients() -> None:
    bias = torch.zeros(1, 5, dtype=torch.float64, requires_grad=True)
    weight = torch.zeros(1, 2, 3, dtype=torch.float64, requires_grad=True)
    log_weight, _, _ = kernels.anneal(bias, weight, bias, torch.linspace(0, 1, 4), 4, kernels.init_rng_state(0, 1))
    assert not log_weight.requires_grad
