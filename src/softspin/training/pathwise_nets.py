"""Which nets support gradient = dreg: a step runs them more than once, and needs gradients of single samples."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.errors import ConfigError
from softspin.model import DiscreteVAE

ROWS = 50
"""Rows of the batch that is tried. Dropout of 1% of a single output escapes notice in 60% of the cases."""


def check_pathwise(model: DiscreteVAE, samples: int) -> None:
    """Raise unless the nets that take soft bits support gradient = dreg.

    Args:
        model: The model, in training mode.
        samples: Number of importance samples K.

    Raises:
        ConfigError: Outputs of an encoder net are random, as with dropout; or, for K > 1, a net couples samples by
            something else than softspin's batch norm.
    """
    generator = torch.Generator().manual_seed(0)
    x = model.mean.new_zeros(model.replicas, ROWS, len(model.mean))
    first = None if model.condition is None else model.condition.values[0].expand(model.replicas, ROWS, -1)
    net = model.given(first)

    def outputs(group: int | None, bits: Tensor) -> Tensor:
        """Outputs of an encoder net, or of the decoder, with gradients to the bits of the same row alone."""
        if group is None:
            return net.decoder_features(bits, own_path=True)[0]
        return net.detached_outputs(x, bits, group, own_path=True)

    for group in (*range(1, len(model.encoder)), None):
        what = "the decoder" if group is None else f"the encoder net of group {group + 1}"
        size = model.units if group is None else group * model.bits_per_group
        bits = torch.rand(model.replicas, 2, ROWS, size, generator=generator).to(model.mean).requires_grad_()
        out = outputs(group, bits)
        # Dropout of the decoder does no harm at K = 1, where it runs once.
        if group is not None or samples > 1:
            same = torch.allclose(out, outputs(group, bits), rtol=1e-3, atol=1e-3, equal_nan=True)
            if not same:
                raise ConfigError(
                    f"gradient = dreg is not possible with {what}, whose outputs are random in training mode; remove "
                    "its dropout, or use gradient = plain"
                )
        if samples > 1 and out.requires_grad:
            (slope,) = torch.autograd.grad(out[:, :, 0].sum(), bits)
            if bool(slope[:, :, 1:].any()):
                raise ConfigError(
                    f"gradient = dreg with several importance samples is not possible with {what}, in which rows of a "
                    "batch depend on each other, as in torch's batch norm; use layer norm, or gradient = plain"
                )
