"""Sequences: at each position one of C categories, log p(x|z) = sum of the log softmax of its logits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor

from softspin.config.fields import Several
from softspin.data.dataset import DataSpec
from softspin.data.mapped import Table, table_chunks
from softspin.data.notices import notice
from softspin.errors import ShapeError
from softspin.likelihoods.base import Likelihood
from softspin.likelihoods.scaled import check_all
from softspin.parts import PartSetting

if TYPE_CHECKING:
    from softspin.config import Config


class Categorical(Likelihood):
    """Independent categories; the decoder's outputs are logits relative to the frequencies of the training data.

    An item is a sequence of integers from 0 to C - 1, one feature for each position, or with `one_hot` a block of C
    features for each position, of which one is 1 and all others are 0.

    Args:
        config: Configuration of the run.
        data: Shape, mean and training data.

    Raises:
        ShapeError: The data do not consist of blocks of C features.
    """

    name = "categorical"
    binary = False
    adjacent = True
    shared = ("base_logits",)
    settings: ClassVar[Mapping[str, PartSetting]] = {
        "categories": PartSetting(Several, 2, "Set the number of categories of each position."),
        "one_hot": PartSetting(
            bool, False, "Read each position as a block of 0 and a single 1, instead of a number from 0."
        ),
    }
    base_logits: Tensor

    def __init__(self, config: Config, data: DataSpec) -> None:
        super().__init__(config, data)
        self.categories, self.one_hot = int(config.options["categories"]), bool(config.options["one_hot"])
        last = data.shape[-1] if len(data.shape) > 1 else data.features
        if self.one_hot and last % self.categories:
            raise ShapeError(
                f"one_hot = true with categories = {self.categories} needs data of shape (..., {self.categories}), not "
                f"{tuple(data.shape)}"
            )
        if not self.one_hot and last == self.categories > 2 and len(data.shape) > 1 and self._is_one_hot(data.train):
            notice(f"the data look like one-hot blocks of {last}; set one_hot = true to read each as one category")
        self.positions = data.features // (self.categories if self.one_hot else 1)
        if self.one_hot:  # a dimension of one block is no dimension of positions
            blocks = (*data.shape[:-1], data.shape[-1] // self.categories)
            self.shape = blocks[:-1] if blocks[-1] == 1 and len(blocks) > 1 else blocks
        count = torch.zeros(self.positions, self.categories, dtype=torch.float64)
        for rows in () if data.train is None else table_chunks(data.train):
            count += self._one_hot(rows).cpu().sum(0)
        frequency = (count + 1) / (count.sum(-1, keepdim=True) + self.categories)
        self.register_buffer("base_logits", frequency.log().flatten().float())

    def _is_one_hot(self, train: Table | None) -> bool:
        """Whether the first training data are blocks of 0 and a single 1."""
        blocks = None if train is None else train[:64].unflatten(-1, (-1, self.categories))
        return blocks is not None and bool(((blocks == 0) | (blocks == 1)).all() and (blocks.sum(-1) == 1).all())

    @property
    def inputs(self) -> int:
        return self.positions * self.categories

    @property
    def outputs(self) -> int:
        return self.positions * self.categories

    def encoder_input(self, x: Tensor, mean: Tensor) -> Tensor:
        """One-hot blocks, minus the frequencies of the training data."""
        return self._one_hot(x).flatten(-2).to(self.base_logits) - self.base_logits.exp()

    def parameters_of(self, out: Tensor) -> Tensor:
        """Logits, `(R, K, batch, positions * C)`."""
        return out + self.base_logits

    def log_prob(self, x: Tensor, parameters: Tensor) -> Tensor:
        log_p = self._blocks(parameters).log_softmax(-1)
        chosen = self._index(x)[:, None]
        shape = torch.broadcast_shapes(log_p.shape[:-1], chosen.shape)
        log_p = log_p.expand(*shape, -1)
        return log_p.gather(-1, chosen.expand(shape)[..., None]).squeeze(-1).sum(-1)

    def mean(self, parameters: Tensor) -> Tensor:
        """Probabilities of one-hot features; the most probable category of integers, whose mean has no meaning."""
        blocks = self._blocks(parameters)
        return blocks.softmax(-1).flatten(-2) if self.one_hot else blocks.argmax(-1).to(parameters.dtype)

    def sample(self, parameters: Tensor, generator: torch.Generator | None = None) -> Tensor:
        p = self._blocks(parameters).softmax(-1)
        index = torch.multinomial(p.reshape(-1, self.categories), 1, generator=generator).reshape(p.shape[:-1])
        drawn = (index[..., None] == self._all(index)).flatten(-2) if self.one_hot else index
        return drawn.to(parameters.dtype)

    def shades(self, x: Tensor) -> Tensor:
        """One-hot features as they are; integers divided by the largest one."""
        return x if self.one_hot else x / (self.categories - 1)

    def check_data(self, x: Tensor) -> None:
        if self.one_hot:
            rule = f"likelihood = {self.name} with one_hot = true needs blocks of {self.categories} with a single 1"
            check_all((x == 0) | (x == 1), x, rule)
            check_all((self._blocks(x).sum(-1, keepdim=True) == 1).expand_as(self._blocks(x)).flatten(-2), x, rule)
            return
        last = self.categories - 1
        rule = f"likelihood = {self.name} with categories = {self.categories} needs whole numbers from 0 to {last}"
        check_all((x >= 0) & (x <= last) & (x == x.floor()), x, rule)

    def _blocks(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.positions, self.categories))

    def _index(self, x: Tensor) -> Tensor:
        """Categories `(..., positions)`, int64."""
        return self._blocks(x).argmax(-1) if self.one_hot else x.long()

    def _one_hot(self, x: Tensor) -> Tensor:
        index = self._index(x)
        return index[..., None] == self._all(index)

    def _all(self, index: Tensor) -> Tensor:
        return torch.arange(self.categories, device=index.device)
