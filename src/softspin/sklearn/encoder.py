"""A discrete VAE as a transformer of scikit-learn: rows to bits and back."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from softspin import api
from softspin.config import Config
from softspin.data import from_arrays
from softspin.errors import ConfigError, RunError, ShapeError, SupportError
from softspin.parts import LIKELIHOODS
from softspin.sklearn.conditions import attach_conditions, query_condition, read_conditions, split_rows
from softspin.sklearn.inputs import Array, check_integer, read_rows, read_seed, read_table, read_weights
from softspin.training.run_files import RUN

_PARAMETERS = {
    "likelihood": "likelihood", "device": "device", "seeds": "random_state", "bits_per_group": "n_bits",
    "steps": "steps",
}  # fmt: skip
"""Settings that are parameters of the estimator, and their names there."""
_OF_FIT = {"data": "X", "condition": "condition"}
"""Settings that are arguments of :meth:`BinaryEncoder.fit`, and their names there."""


class BinaryEncoder(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Binary codes of rows, by a VAE with binary latent variables and a Boltzmann prior.

    It is :func:`softspin.fit` with the interface of scikit-learn, and :attr:`model_` is its model. With `condition`, it
    is a model of p(x | c). All methods then need the condition of each row, which is metadata for the routing of
    scikit-learn, such as `BinaryEncoder().set_fit_request(condition=True)`.

    Example:
        >>> from sklearn.datasets import load_digits
        >>> x = load_digits().data / 16
        >>> encoder = BinaryEncoder(n_bits=32, random_state=0)
        >>> codes = encoder.fit_transform(x)  # doctest: +SKIP

    Args:
        n_bits: Number of latent bits in each group; a structure such as "2-nonlinear" in `settings` has 2 groups. The
            total is even for an RBM prior.
        likelihood: Distribution of a row given its bits, such as "gaussian" for real numbers, "negative-binomial" for
            counts or "categorical" for sequences. With "bernoulli", values are bits or gray levels.
        output: What :meth:`transform` returns: the most probable "bits", or "probabilities".
        steps: Number of training steps; None is that of the profile.
        validation_fraction: Share of the rows by which the best parameters are chosen, and on which the reported
            likelihood is evaluated.
        settings: Other settings by name, such as `{"method": "dvae++-exp", "width": 100}`.
        shape: Shape of an image, such as (28, 28), if the rows are flattened images: for networks of images such as
            `settings={"net": "conv"}`. By default rows are vectors.
        binarize: Values above are 1, others 0. None: values must be in [0, 1]; those between are gray levels, from
            which bits are drawn for every batch. For `likelihood="bernoulli"` only.
        folder: Run directory; None for a temporary one.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        random_state: Seed, generator of NumPy, or None for new random numbers each time.
        verbose: Whether to show the progress.

    Attributes:
        model_: The trained :class:`softspin.Model`.
        n_features_in_: Number of columns.
    """

    def __init__(
        self,
        n_bits: int = 32,
        *,
        likelihood: str = "bernoulli",
        output: Literal["bits", "probabilities"] = "bits",
        steps: int | None = None,
        validation_fraction: float = 0.1,
        settings: Mapping[str, Any] | None = None,
        shape: Sequence[int] | None = None,
        binarize: float | None = None,
        folder: str | None = None,
        device: str = "cpu",
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_bits = n_bits
        self.likelihood = likelihood
        self.output = output
        self.steps = steps
        self.validation_fraction = validation_fraction
        self.settings = settings
        self.shape = shape
        self.binarize = binarize
        self.folder = folder
        self.device = device
        self.random_state = random_state
        self.verbose = verbose

    def fit(self, X: Any, y: Any = None, *, condition: Any = None) -> Self:
        """Train the VAE.

        Args:
            X: Data, `(rows, columns)`.
            y: Ignored.
            condition: Condition c of each row, for a model of p(x | c): integers or text `(rows,)` are a class, floats
                `(rows,)` or `(rows, columns)` are numbers; or the name of a column of `obs` of an AnnData object.

        Returns:
            The estimator.

        Raises:
            ConfigError: A parameter is not possible.
            RunError: The folder already holds a run.
            ShapeError: There are fewer than 2 rows, or there is not one condition for each.
            SupportError: A value of X is outside the support of the likelihood; for "bernoulli", outside [0, 1]. Or a
                condition is neither a class nor finite, or is the same for all rows.
        """
        rows = self._read(X, reset=True)
        if self.output not in ("bits", "probabilities"):
            raise ConfigError(f"output = {self.output!r} is not possible; it must be bits or probabilities")
        if not isinstance(self.validation_fraction, int | float | np.number) or not 0 < self.validation_fraction < 1:
            raise ConfigError(
                f"validation_fraction = {self.validation_fraction!r} is not possible; it must be in (0, 1)"
            )
        if len(rows) < 2:
            raise ShapeError("n_samples=1 is too few; at least 2 rows are needed, one of them for validation")
        if self.folder is not None and (Path(self.folder) / RUN).exists():
            raise RunError(f"folder = {self.folder!r} already holds a run; give another one, or None")
        shape = self._read_shape(rows.shape[1])
        given = read_conditions(X, condition, len(rows))
        seed = read_seed(self.random_state)
        split = split_rows(given, len(rows), self.validation_fraction, seed)
        train, valid = rows[split.train], rows[split.valid]
        settings = {"structure": "1-nonlinear", **self._settings()}
        config = Config(**settings, likelihood=self.likelihood, device=self.device, seeds=(seed,))
        if self.steps is not None:
            config = config.replace(steps=self.steps)
        binary = self._is_binary
        data = from_arrays(train, valid, valid, name="X", source="data of scikit-learn", binarize=binary)
        data = attach_conditions(data, given, split)
        with tempfile.TemporaryDirectory() as temporary:
            folder = Path(temporary) / "run" if self.folder is None else Path(self.folder)
            self.model_ = api.fit(config, data, folder, shape=shape, progress=self.verbose, pictures=False)
        return self

    def _settings(self) -> dict[str, Any]:
        """Settings of the run, without those that are parameters of the estimator."""
        if not isinstance(self.settings, Mapping | None):
            raise ConfigError(f"settings = {self.settings!r} is not possible; give a mapping such as {{'width': 100}}")
        settings = dict(self.settings or {})
        for name, own in _PARAMETERS.items():
            if name in settings and (name != "steps" or self.steps is not None):
                raise ConfigError(f"settings has {name}; give it as the parameter {own} of BinaryEncoder")
        for name, own in _OF_FIT.items():
            if name in settings:
                raise ConfigError(f"settings has {name}; give it to fit, as {own}")
        return {**settings, "bits_per_group": check_integer("n_bits", self.n_bits)}

    def _read_shape(self, columns: int) -> tuple[int, ...] | None:
        """The parameter `shape`, checked."""
        if self.shape is None:
            return None
        sizes = self.shape if isinstance(self.shape, list | tuple) else ()
        if not sizes or not all(
            isinstance(one, int | np.integer) and not isinstance(one, bool) and one > 0 for one in sizes
        ):
            raise ConfigError(
                f"shape = {self.shape!r} is not possible; it must be a tuple of positive integers, such as (28, 28), "
                "or None"
            )
        shape = tuple(int(one) for one in sizes)
        if math.prod(shape) != columns:
            raise ShapeError(f"shape = {shape} has {math.prod(shape)} values; X has {columns} columns")
        return shape

    def fit_transform(self, X: Any, y: Any = None, *, condition: Any = None) -> Array:
        """Train the VAE, and return the codes of the rows.

        Args:
            X: Data, `(rows, columns)`.
            y: Ignored.
            condition: Condition of each row, see :meth:`fit`.

        Returns:
            Codes, `(rows, bits)`.
        """
        return self.fit(X, y, condition=condition).transform(X, condition=condition)

    def transform(self, X: Any, *, condition: Any = None) -> Array:
        """Codes of rows: the most probable bits, or the probabilities of the bits.

        Args:
            X: Data, `(rows, columns)`.
            condition: Condition of each row, or a single value for all, if the model is of p(x | c).

        Returns:
            Codes, `(rows, bits)`: `n_bits` for each group.

        Raises:
            ShapeError: There is not one condition for each row.
            SupportError: A value of X is outside the support of the likelihood; for "bernoulli", outside [0, 1].
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
        items, given = self._items(rows), query_condition(self.model_, X, condition, len(rows))
        if self.output == "bits":
            found = self.model_.encode(items, condition=given, sample=False)
        else:
            found = self.model_.probabilities(items, condition=given)
        return found.cpu().numpy().astype(rows.dtype)

    def inverse_transform(self, X: Any, *, condition: Any = None) -> Array:
        """Decode bits.

        Args:
            X: Codes, `(rows, bits)`; probabilities are rounded.
            condition: Condition of each row, or a single value for all, if the model is of p(x | c).

        Returns:
            Means of the columns, `(rows, columns)`; of bits, these are probabilities.

        Raises:
            ShapeError: There is another number of bits, or there is not one condition for each row.
            SupportError: A value is outside [0, 1].
        """
        check_is_fitted(self)
        codes = check_array(X, dtype=(np.float64, np.float32))
        if not ((codes >= 0) & (codes <= 1)).all():
            raise SupportError(f"codes are from {codes.min():g} to {codes.max():g}; give bits or probabilities")
        given = query_condition(self.model_, X, condition, len(codes))
        decoded = self.model_.decode(torch.from_numpy((codes > 0.5).astype(np.float32)), condition=given)
        return decoded.cpu().flatten(1).numpy().astype(codes.dtype)

    def score_samples(self, X: Any, *, condition: Any = None) -> Array:
        """Estimated log-likelihood of each row, in nats: log p(x), or log p(x | c).

        Args:
            X: Data, `(rows, columns)`.
            condition: Condition of each row, or a single value for all, if the model is of p(x | c).

        Returns:
            Log-likelihoods, `(rows,)`; for continuous data, those of a density.

        Raises:
            ShapeError: There is not one condition for each row.
            SupportError: A value of X is outside the support of the likelihood; for "bernoulli", outside [0, 1].
        """
        check_is_fitted(self)
        rows = self._read(X, reset=False)
        given = query_condition(self.model_, X, condition, len(rows))
        return self.model_.score_samples(self._items(rows), condition=given).cpu().numpy()

    # If metadata routing is enabled, Pipeline.score fails unless its last step has the argument sample_weight.
    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, condition: Any = None) -> float:
        """Mean log-likelihood of the rows, in nats.

        Args:
            X: Data, `(rows, columns)`.
            y: Ignored.
            sample_weight: Weight of each row in the mean; equal by default.
            condition: Condition of each row, or a single value for all, if the model is of p(x | c).

        Returns:
            The mean.

        Raises:
            ShapeError: There is not one condition or weight for each row.
            SupportError: A weight is negative, or all are 0.
        """
        scores = self.score_samples(X, condition=condition)
        return float(np.average(scores, weights=read_weights(sample_weight, len(scores))))

    def sample(self, n_samples: int = 1, *, condition: Any = None, random_state: Any = None) -> Array:
        """Generate rows from samples of the prior: probabilities of bits, or draws of other data.

        Args:
            n_samples: Number of draws.
            condition: Condition of each draw, or a single value for all, if the model is of p(x | c).
            random_state: Seed, generator, or None for new draws each time.

        Returns:
            Rows, `(n_samples, columns)`.
        """
        check_is_fitted(self)
        given = query_condition(self.model_, None, condition, n_samples)
        return self.model_.sample(n_samples, condition=given, seed=read_seed(random_state)).cpu().flatten(1).numpy()

    @property
    def _is_binary(self) -> bool:
        return bool(LIKELIHOODS.get(self.likelihood).binary)

    def _read(self, X: Any, *, reset: bool) -> Array:
        if self._is_binary:
            return read_rows(self, X, self.binarize, reset=reset, gray=True)
        if self.binarize is not None:
            raise ConfigError(f"binarize = {self.binarize} is not possible with likelihood = {self.likelihood}")
        return read_table(self, X, reset=reset)

    def _items(self, rows: Array) -> torch.Tensor:
        """Rows for the model: gray levels above 1/2 are 1, so that codes do not depend on other rows of a call."""
        own = (rows > 0.5).astype(np.uint8) if self._is_binary else rows
        return torch.from_numpy(np.require(own, requirements="W"))  # torch warns of arrays that are read-only

    @property
    def _n_features_out(self) -> int:
        return int(self.model_.net.units)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
