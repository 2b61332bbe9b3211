"""Properties of the approximate posterior q(z|x) other than its samples."""

from __future__ import annotations

import torch
from torch import Tensor

from softspin.methods import LatentModel


def likely_bits(net: LatentModel, x: Tensor) -> Tensor:
    """The most probable bits under q(z|x), group by group: each group given the most probable groups before it.

    Args:
        net: Networks, in evaluation mode.
        x: Data, `(R, batch, features)`.

    Returns:
        Bits, `(R, 1, batch, D)`.
    """
    bits: list[Tensor] = []

    def choose(group: int, out: Tensor, noise: Tensor) -> Tensor:
        bits.append((out[..., : net.bits_per_group] > 0).to(out.dtype))
        return bits[-1]

    net.encode_groups(x, x.new_zeros(net.units), choose)
    return torch.cat(bits, dim=-1)


def posterior_means(net: LatentModel, x: Tensor, noise: Tensor) -> Tensor:
    """q(z = 1|x, earlier groups) of every bit, where the earlier groups are samples.

    Args:
        net: Networks, in evaluation mode.
        x: Data, `(R, batch, features)`.
        noise: Uniforms, `(R, K, batch, D)`.

    Returns:
        Probabilities, `(R, K, batch, D)`. Those of the first group are the same for all K.
    """
    means: list[Tensor] = []

    def draw(group: int, out: Tensor, noise: Tensor) -> Tensor:
        means.append(torch.sigmoid(out[..., : net.bits_per_group]).expand(noise.shape))
        return (noise < means[-1]).to(out.dtype)

    net.encode_groups(x, noise, draw)
    return torch.cat(means, dim=-1)
