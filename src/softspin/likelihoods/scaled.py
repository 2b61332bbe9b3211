"""Likelihoods with a learned scale: one for each feature, or one more output of the decoder for each feature."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from softspin.data.dataset import DataSpec
from softspin.data.mapped import Table, table_chunks
from softspin.errors import OutsideSupportError
from softspin.likelihoods.base import Likelihood
from softspin.parts import PartSetting

if TYPE_CHECKING:
    from softspin.config import Config

LIMIT = 7.0
"""Largest abs(log scale) relative to the training data. Without it, the density of a constant feature is unbounded."""

LARGEST = 1e14
"""Largest abs of a standardized value, so that its square is finite in float32; data beyond it are as unlikely."""


class Scaled(Likelihood):
    """Independent features with some outputs each and a log scale, which is learned.

    The parameters are those outputs and the log scale, `(..., (per_feature + 1) F)`, all relative to constants of the
    training data, so that 0 is a good start for all of them.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data.
    """

    binary = False
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "scale": PartSetting(
            Literal["feature", "output"],
            "feature",
            "Learn one scale (of a Gaussian: one variance) for each feature, or make it an output of the decoder.",
        )
    }
    per_feature: ClassVar[int] = 1
    """Outputs of the decoder for each feature, besides the scale."""
    shared: ClassVar[tuple[str, ...]] = ("center", "spread")
    center: Tensor
    """Mean of the transformed training data, `(F,)`."""
    spread: Tensor
    """Standard deviation of the transformed training data, `(F,)`."""
    log_scale: nn.Parameter | None

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__(config, data)
        own = config.options["scale"] == "feature"
        self.log_scale = nn.Parameter(torch.zeros(len(config.replicas), data.features)) if own else None
        center, spread = moments(data.train, data.features, self.transformed)
        self.register_buffer("center", center)
        self.register_buffer("spread", spread)

    def transformed(self, x: Tensor) -> Tensor:
        """The data on the scale on which they are standardized.

        Args:
            x: Data, `(..., F)`.

        Returns:
            Transformed data of the same shape.
        """
        return x

    def encoder_input(self, x: Tensor, mean: Tensor) -> Tensor:
        """Standardized data: (transformed x - center) / spread, within 1e14 of 0."""
        return ((self.transformed(x) - self.center) / self.spread).clamp(-LARGEST, LARGEST)

    @property
    def outputs(self) -> int:
        return (self.per_feature + (self.log_scale is None)) * self.features

    def parameters_of(self, out: Tensor) -> Tensor:
        """Outputs and log scale, `(R, K, batch, (per_feature + 1) F)`; the log scale is between -7 and 7."""
        if self.log_scale is None:
            out, free = out.split([self.per_feature * self.features, self.features], dim=-1)
        else:
            free = self.log_scale[:, None, None].expand(*out.shape[:-1], -1)
        return torch.cat([out, LIMIT * torch.tanh(free / LIMIT)], dim=-1)

    def columns(self, parameters: Tensor) -> tuple[Tensor, ...]:
        """Split the parameters by their meaning.

        Args:
            parameters: Parameters, `(..., (per_feature + 1) F)`.

        Returns:
            Tensors `(..., F)`; the log scale is the last one.
        """
        return parameters.split(self.features, dim=-1)


def check_finite(x: Tensor, likelihood: str) -> None:
    """Raise SupportError for NaN and infinity, with the place of the first one."""
    if x.is_floating_point():
        check_all(x.isfinite(), x, f"likelihood = {likelihood} needs finite numbers")


def check_all(valid: Tensor, x: Tensor, rule: str) -> None:
    """Raise SupportError with the first value that is not valid and its place.

    Args:
        valid: Whether each value is valid, `(N, F)`.
        x: Data, `(N, F)`.
        rule: What would be right.

    Raises:
        OutsideSupportError: A value is not valid.
    """
    if not bool(valid.all()):
        row, column = (~valid).nonzero()[0].tolist()
        raise OutsideSupportError(x[row, column].item(), row, column, rule)


def moments(
    table: Table | None, features: int, transform: Callable[[Tensor], Tensor] = lambda x: x
) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation of every feature, `(F,)` each, float32; a feature without spread has 1.

    Args:
        table: Training data `(N, F)`; None if a model is loaded, which replaces the result by stored tensors.
        features: Number of features F.
        transform: Function of the data, float64 to float64, whose moments are computed.

    Returns:
        Mean and standard deviation.
    """
    if table is None:
        return torch.zeros(features), torch.ones(features)
    total, squares = (torch.zeros(features, dtype=torch.float64) for _ in range(2))
    for rows in table_chunks(table):
        total += transform(rows.cpu().double()).sum(0)
    mean = total / len(table)
    for rows in table_chunks(table):
        squares += (transform(rows.cpu().double()) - mean).square().sum(0)
    scale = (squares / len(table)).sqrt()
    # Rounding leaves a constant feature with a spread of about 1e-16 of its size.
    spread = scale > 1e-7 * mean.abs()
    return mean.float(), torch.where(spread, scale, torch.ones_like(scale)).float()
