"""A restricted Boltzmann machine with the interface of scikit-learn."""

from __future__ import annotations

from typing import Any, Literal, Self

import numpy as np
import torch
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted

from softspin.boltzmann_machine import BoltzmannConfig, BoltzmannModel
from softspin.boltzmann_machine.engine import Engine
from softspin.boltzmann_machine.parameters import empty_parameters
from softspin.data import Dataset
from softspin.errors import ConfigError
from softspin.provenance import find_device
from softspin.sklearn.inputs import Array, check_integer, read_rows, read_seed

_FIXED = ("n_components", "sampler", "chains", "average")
"""Parameters that determine the state of the training, which :meth:`BoltzmannMachine.partial_fit` continues."""


class BoltzmannMachine(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Restricted Boltzmann machine on binary data, by maximum likelihood.

    Unlike scikit-learn's `BernoulliRBM`, :meth:`score_samples` returns log-likelihoods, not pseudo-likelihoods: log Z
    is exact for small machines and otherwise estimated by annealing, see :meth:`log_z`. No run directory is written;
    :func:`softspin.fit_boltzmann` writes one, with checkpoints and a metrics log.

    Example:
        >>> import numpy as np
        >>> x = np.array([[0, 0, 1], [0, 1, 1], [1, 1, 0], [1, 1, 1]])
        >>> rbm = BoltzmannMachine(n_components=2, max_iter=5, random_state=0).fit(x)
        >>> rbm.transform(x).shape, rbm.score_samples(x).shape
        ((4, 2), (4,))

    Args:
        n_components: Number of hidden units.
        learning_rate: Initial learning rate. It falls linearly to 0 in :meth:`fit`, and is constant in
            :meth:`partial_fit`.
        batch_size: Rows in a step.
        max_iter: Passes over the data.
        sampler: Sampler of the negative phase: "pcd", "pa" or "pt".
        chains: Number of chains.
        sweeps: Gibbs sweeps of each chain in a step.
        weight_decay: Weight decay.
        centred: Whether gradients are centred.
        average: Whether the result is the average of the parameters over about the last tenth of the steps.
        binarize: Values above are 1, others 0. None: the data must be 0 or 1.
        device: "cpu", "cuda", or "auto" for a GPU if there is one.
        random_state: Seed, generator of NumPy, or None for new random numbers each time.

    Attributes:
        components_: Couplings, `(n_components, n_features)`.
        intercept_hidden_: Biases of the hidden units, `(n_components,)`.
        intercept_visible_: Biases of the visible units, `(n_features,)`.
        n_features_in_: Number of columns.
        n_iter_: Passes made over data.
        n_steps_: Training steps made.
    """

    def __init__(
        self,
        n_components: int = 200,
        *,
        learning_rate: float = 0.2,
        batch_size: int = 100,
        max_iter: int = 50,
        sampler: str = "pcd",
        chains: int = 100,
        sweeps: int = 1,
        weight_decay: float = 0.0,
        centred: bool = True,
        average: bool = True,
        binarize: float | None = None,
        device: str = "cpu",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.learning_rate = learning_rate
        self.batch_size = batch_size
        self.max_iter = max_iter
        self.sampler = sampler
        self.chains = chains
        self.sweeps = sweeps
        self.weight_decay = weight_decay
        self.centred = centred
        self.average = average
        self.binarize = binarize
        self.device = device
        self.random_state = random_state

    # Training -----------------------------------------------------------------------------------------

    def fit(self, X: Any, y: Any = None) -> Self:
        """Fit the parameters to data.

        Args:
            X: Binary data, `(rows, columns)`.
            y: Ignored.

        Returns:
            The estimator.

        Raises:
            ConfigError: A parameter is not possible.
            SupportError: A value of X is neither 0 nor 1, and `binarize` is None.
        """
        rows = read_rows(self, X, self.binarize, reset=True)
        passes, size = check_integer("max_iter", self.max_iter), check_integer("batch_size", self.batch_size)
        steps = passes * max(1, len(rows) // size)
        engine = self._engine(rows, steps, "linear", read_seed(self.random_state))
        self.n_iter_ = passes
        return self._run(engine, steps)

    def partial_fit(self, X: Any, y: Any = None) -> Self:
        """Continue with one pass over more data, at a constant learning rate.

        Args:
            X: Binary data, `(rows, columns)`.
            y: Ignored.

        Returns:
            The estimator.

        Raises:
            ConfigError: A parameter is not possible, or was changed and does not fit the state of the training.
            SupportError: A value of X is neither 0 nor 1, and `binarize` is None.
        """
        first = not hasattr(self, "components_")
        rows = read_rows(self, X, self.binarize, reset=first)
        for name in () if first else _FIXED:
            if getattr(self, name) != self._fitted[name]:
                raise ConfigError(
                    f"{name} was changed from {self._fitted[name]!r} to {getattr(self, name)!r}; partial_fit "
                    "continues with the same, fit starts again"
                )
        engine = self._engine(rows, 1, "constant", read_seed(self.random_state) if first else 0)
        if not first:
            engine.load({name: torch.from_numpy(value.copy()) for name, value in self._state.items()})
        self.n_iter_ = 1 if first else self.n_iter_ + 1
        return self._run(engine, engine.update.steps_per_epoch)

    def _engine(self, rows: Array, steps: int, schedule: Literal["linear", "constant"], seed: int) -> Engine:
        settings: dict[str, Any] = {
            "learning_rate": self.learning_rate, "batch_size": self.batch_size, "sampler": self.sampler,
            "chains": self.chains, "sweeps": self.sweeps, "weight_decay": self.weight_decay, "centred": self.centred,
            "average": self.average, "device": self.device,
        }  # fmt: skip
        hidden = check_integer("n_components", self.n_components)
        config = BoltzmannConfig(**settings, hidden=hidden, seeds=(seed,), steps=steps, schedule=schedule)
        bits = torch.from_numpy(rows.astype(np.uint8))
        data = Dataset("X", bits, bits[:1], bits[:1], (bits.shape[1],), "static", "data of scikit-learn")
        return Engine(config, data, find_device(config.device))

    def _run(self, engine: Engine, steps: int) -> Self:
        for _ in range(steps):
            engine.step()
        found = {name: value[0].cpu().numpy().copy() for name, value in engine.update.result.items()}
        visible = engine.update.visible
        self.intercept_visible_, self.intercept_hidden_ = found["bias"][:visible], found["bias"][visible:]
        self.components_ = found["weight"].T.copy()
        self.n_steps_ = engine.steps
        self._fitted = {name: getattr(self, name) for name in _FIXED}
        self._activity = engine.update.offset[0].cpu().numpy().copy()
        self._state = {name: value.cpu().numpy().copy() for name, value in engine.state().items()}
        return self

    # Queries ------------------------------------------------------------------------------------------

    @property
    def model_(self) -> BoltzmannModel:
        """The trained model, with more methods: energies, log Z with its interval, files."""
        check_is_fitted(self)
        config = BoltzmannConfig(hidden=len(self.components_))  # n_components may have been set since
        prior = empty_parameters(config.shape(self.n_features_in_), 1)
        bias = torch.from_numpy(np.concatenate([self.intercept_visible_, self.intercept_hidden_]))
        weight = torch.from_numpy(np.ascontiguousarray(self.components_.T))
        prior.load_state_dict({"bias": bias[None], "weight": weight[None]})
        activity = torch.from_numpy(self._activity)[None]
        return BoltzmannModel(prior, config.shape(self.n_features_in_), config, activity=activity)

    def transform(self, X: Any) -> Array:
        """Probabilities of the hidden units given rows.

        Args:
            X: Binary data, `(rows, columns)`.

        Returns:
            Probabilities, `(rows, n_components)`.

        Raises:
            SupportError: A value of X is neither 0 nor 1, and `binarize` is None.
        """
        check_is_fitted(self)
        rows = read_rows(self, X, self.binarize, reset=False)
        return self.model_.hidden_means(rows).numpy().astype(rows.dtype)

    def inverse_transform(self, X: Any) -> Array:
        """Probabilities of the visible units given hidden units.

        Args:
            X: Hidden units, bits or probabilities, `(rows, n_components)`.

        Returns:
            Probabilities, `(rows, columns)`.

        Raises:
            ShapeError: There is another number of hidden units.
            SupportError: A value is outside [0, 1].
        """
        check_is_fitted(self)
        hidden = check_array(X, dtype=(np.float64, np.float32))
        return self.model_.visible_means(hidden).numpy().astype(hidden.dtype)

    def score_samples(self, X: Any) -> Array:
        """Log-likelihood of each row, in nats.

        Args:
            X: Binary data, `(rows, columns)`.

        Returns:
            Log-likelihoods, `(rows,)`.

        Raises:
            SupportError: A value of X is neither 0 nor 1, and `binarize` is None.
        """
        check_is_fitted(self)
        rows = read_rows(self, X, self.binarize, reset=False)
        found: Array = -self.model_.free_energy(rows).numpy() - self.log_z().value
        return found

    def score(self, X: Any, y: Any = None) -> float:
        """Mean log-likelihood of the rows, in nats.

        Args:
            X: Binary data, `(rows, columns)`.
            y: Ignored.

        Returns:
            The mean.
        """
        return float(self.score_samples(X).mean())

    def log_z(self) -> Any:
        """log Z with its interval; it is estimated once, with a fixed seed.

        Returns:
            Value, standard error and interval, as :meth:`softspin.BoltzmannModel.log_z`.
        """
        check_is_fitted(self)
        known = getattr(self, "_log_z", None)
        if known is None or known[0] is not self.components_:  # every fit makes a new array
            self._log_z = self.components_, self.model_.log_z()
        return self._log_z[1]

    def sample(self, n_samples: int = 1, *, random_state: Any = None) -> Array:
        """Draw rows, by population annealing and Gibbs sweeps.

        Args:
            n_samples: Number of draws.
            random_state: Seed, generator, or None for new draws each time.

        Returns:
            Bits, `(n_samples, columns)`.
        """
        check_is_fitted(self)
        return self.model_.sample(n_samples, seed=read_seed(random_state)).numpy()

    @property
    def _n_features_out(self) -> int:
        return int(self.components_.shape[0])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
