"""A trained Boltzmann machine in use: likelihoods, energies, hidden units, samples, files."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from softspin.boltzmann_machine.config import BoltzmannConfig, Shape
from softspin.boltzmann_machine.likelihood import LogLikelihood, activity_base, log_likelihood
from softspin.boltzmann_machine.parameters import empty_parameters
from softspin.boltzmann_machine.run_files import BoltzmannResult
from softspin.data import as_images
from softspin.distributions import Boltzmann, VisibleMarginal
from softspin.errors import ConfigError, NoClosedFormError, ShapeError, SupportError
from softspin.evaluation.partition import check_log_z, log_z_of_replicas, without_rounded
from softspin.likelihoods.bernoulli import check_binary
from softspin.numerics import real_tensor
from softspin.priors.base import Prior
from softspin.samplers import LogZ
from softspin.samplers.primitives import check_count, split_replicas
from softspin.trained.arguments import read_log_z, read_seed, single
from softspin.trained.prior_samples import prior_bits


class BoltzmannModel:
    """A Boltzmann machine over visible units, the columns of the data, and hidden units.

    Get one from :func:`softspin.fit_boltzmann` or :func:`softspin.load_boltzmann`, or from your own parameters by
    :meth:`from_boltzmann`. Methods use one replica, :attr:`replica`; :meth:`only` chooses another.

    Example:
        >>> from softspin.distributions import BipartiteBoltzmann
        >>> model = BoltzmannModel.from_boltzmann(BipartiteBoltzmann(torch.zeros(5), torch.ones(2, 3)), visible=2)
        >>> model.score_samples([[0, 0], [1, 1]])
        tensor([-4.4734, -0.1720], dtype=torch.float64)

    Args:
        prior: The parameters, with replicas.
        shape: Units and couplings.
        config: Settings of the run, and of the estimates of log Z.
        replica: The replica that methods use.
        result: Result of each replica, if there is one.
        activity: Means of all units over the training data, `(R, n + m)`, from which annealing starts; None if unknown.
        columns: Names of the columns of the training data, if they have names.

    Raises:
        ConfigError: There is no such replica.
    """

    def __init__(
        self,
        prior: Prior,
        shape: Shape,
        config: BoltzmannConfig | None = None,
        *,
        replica: int = 0,
        result: Sequence[BoltzmannResult] | None = None,
        activity: Tensor | None = None,
        columns: Sequence[str] | None = None,
    ) -> None:
        self.prior, self.shape = prior.requires_grad_(False), shape
        self.config = config or BoltzmannConfig()
        self.replicas = len(prior.bias)
        if not 0 <= replica < self.replicas:
            raise ConfigError(f"replica = {replica} is not possible; it must be a number from 0 to {self.replicas - 1}")
        self.replica = replica
        self.result = None if result is None else tuple(result)
        self.activity = activity
        self.columns = None if columns is None else tuple(columns)
        self._log_z: tuple[tuple[Tensor, Tensor], LogZ[Any]] | None = None
        """The parameters for which log Z was estimated, and the estimate."""

    @classmethod
    def from_boltzmann(cls, boltzmann: Boltzmann, visible: int) -> BoltzmannModel:
        """A model of given parameters.

        Args:
            boltzmann: Boltzmann machine, of one model or with one replica dimension.
            visible: Number of visible units, the first ones.

        Returns:
            The model; its parameters are copies.

        Raises:
            SupportError: Hidden units are coupled with each other.
        """
        VisibleMarginal(boltzmann, visible).check()
        bias = boltzmann.bias.detach().reshape(-1, boltzmann.units)
        couplings = boltzmann.couplings.detach().reshape(len(bias), *boltzmann.couplings.shape[-2:])
        among, _ = boltzmann.split(visible)
        if among is None:
            shape = Shape(visible, boltzmann.units - visible, None)
            weight = couplings
        else:
            first, second = (index.tolist() for index in boltzmann.edges())
            shape = Shape(visible, boltzmann.units - visible, tuple(zip(first, second, strict=True)))
            dense = boltzmann.coupling.detach().reshape(len(bias), boltzmann.units, boltzmann.units)
            weight = dense[:, first, second]
        prior = empty_parameters(shape, len(bias)).to(bias.device, bias.dtype)
        prior.load_state_dict({"bias": bias, "weight": weight})
        return cls(prior, shape)

    def __repr__(self) -> str:
        return f"BoltzmannModel({self.shape.text}, replica {self.replica} of {self.replicas})"

    # Distributions ------------------------------------------------------------------------------------

    @property
    def visible(self) -> int:
        """Number of visible units."""
        return self.shape.visible

    @property
    def hidden(self) -> int:
        """Number of hidden units."""
        return self.shape.hidden

    def boltzmann(self) -> Boltzmann:
        """The joint distribution of visible and hidden units.

        Returns:
            The Boltzmann machine of the replica.
        """
        return split_replicas(self.prior(validate=False))[self.replica]

    def marginal(self) -> VisibleMarginal:
        """The distribution of the visible units.

        Returns:
            The marginal distribution; its log Z is computed by enumeration only.
        """
        return VisibleMarginal(self.boltzmann(), self.visible)

    def only(self, replica: int) -> BoltzmannModel:
        """The same model with another replica in use.

        Args:
            replica: Number of the replica, from 0.

        Returns:
            The model; it shares the parameters.

        Raises:
            ConfigError: There is no such replica.
        """
        return BoltzmannModel(
            self.prior, self.shape, self.config,
            replica=replica, result=self.result, activity=self.activity, columns=self.columns,
        )  # fmt: skip

    # Likelihoods --------------------------------------------------------------------------------------

    def log_z(self, *, temperatures: int | None = None, chains: int | None = None, seed: int = 0) -> LogZ[Any]:
        """Estimate log Z: exact for small Boltzmann machines, else by annealing in both directions.

        Args:
            temperatures: Annealing temperatures; by default the setting `test_temperatures`.
            chains: Annealed chains; by default the setting `test_chains`.
            seed: Seed of the random numbers.

        Returns:
            Value, standard error and interval, as floats.

        Raises:
            SupportError: The parameters are too large for a finite log Z.
        """
        one = self.boltzmann()
        with_replica = one.with_parameters(one.bias[None], one.couplings[None])
        found = log_z_of_replicas(
            with_replica,
            temperatures=self.config.test_temperatures if temperatures is None else temperatures,
            chains=self.config.test_chains if chains is None else chains,
            seeds=[read_seed(seed)],
            base=None if self.activity is None else activity_base(self.activity[self.replica][None]).to(one.bias),
        )
        found = without_rounded(found, with_replica, torch.float64)  # the type of free energies
        check_log_z(found)
        return single(found)

    def log_likelihood(self, x: Any, *, log_z: LogZ[Any] | None = None) -> LogLikelihood[Any]:
        """Compute the mean log-likelihood of data, with its standard error and the interval by log Z.

        Args:
            x: Binary data `(N, n)`, in any form that :func:`softspin.data.as_images` accepts.
            log_z: An estimate to use instead of the model's own, which is computed once.

        Returns:
            The log-likelihood, as floats.

        Raises:
            ShapeError: The data have another number of columns, or `log_z` is not that of one replica.
            SupportError: A value is neither 0 nor 1.
        """
        one, rows = self.boltzmann(), self._data(x)
        known = self._known_log_z() if log_z is None else log_z
        with_replica = one.with_parameters(one.bias[None], one.couplings[None])
        return single(log_likelihood(with_replica, self.visible, rows, read_log_z(known, 1)))

    def score_samples(self, x: Any) -> Tensor:
        """Compute log p(v) of each row, with the value of log Z.

        Args:
            x: Binary data `(N, n)`.

        Returns:
            Log probabilities `(N,)`, float64.

        Raises:
            ShapeError: The data have another number of columns.
            SupportError: A value is neither 0 nor 1.
        """
        return -self.free_energy(x) - self._known_log_z().value

    def free_energy(self, x: Any) -> Tensor:
        """Compute F(v) of each row: log p(v) = -F(v) - log Z.

        Args:
            x: Binary data `(N, n)`.

        Returns:
            Free energies `(N,)`, float64.

        Raises:
            ShapeError: The data have another number of columns.
            SupportError: A value is neither 0 nor 1.
        """
        one = self.boltzmann()
        precise = one.with_parameters(one.bias.double(), one.couplings.double())
        return VisibleMarginal(precise, self.visible).free_energy(self._data(x).to(precise.bias))

    def energy(self, z: Any) -> Tensor:
        """Compute E(v, h) of joint states.

        Args:
            z: States of visible and hidden units `(..., n + m)`, visible ones first.

        Returns:
            Energies `(...)`.

        Raises:
            ShapeError: There is another number of units.
        """
        one = self.boltzmann()
        return one.energy(one.as_states("states", z))

    # Hidden units and samples -------------------------------------------------------------------------

    def hidden_means(self, x: Any) -> Tensor:
        """Compute p(h_j = 1 | v) of each row.

        Args:
            x: Binary data `(N, n)`.

        Returns:
            Probabilities `(N, m)`.

        Raises:
            ShapeError: The data have another number of columns.
            SupportError: A value is neither 0 nor 1.
        """
        return torch.sigmoid(self.marginal().hidden_field(self._data(x)))

    def visible_means(self, h: Any) -> Tensor:
        """Compute p(v_i = 1 | h) of each row of hidden states or means; only an RBM has it in closed form.

        Args:
            h: Hidden units `(N, m)`, values in [0, 1].

        Returns:
            Probabilities `(N, n)`.

        Raises:
            NoClosedFormError: Visible units are coupled with each other.
            ShapeError: There is another number of hidden units.
            SupportError: A value is outside [0, 1].
        """
        if self.shape.edges is not None and any(second < self.visible for _, second in self.shape.edges):
            raise NoClosedFormError(
                "visible units are coupled with each other, so p(v | h) has no closed form; only an RBM has one"
            )
        one = self.boltzmann()
        hidden = real_tensor("hidden units", h).to(one.bias)
        if hidden.shape[-1:] != (self.hidden,):
            raise ShapeError(f"hidden units of shape {tuple(hidden.shape)}; the last dimension must be {self.hidden}")
        if not bool(((hidden >= 0) & (hidden <= 1)).all()):
            raise SupportError("hidden units have values outside [0, 1]; give bits or probabilities")
        _, across = one.split(self.visible)
        return torch.sigmoid(one.bias[: self.visible] + hidden @ across.mT)

    def sample(self, n: int = 1, *, seed: int | None = None) -> Tensor:
        """Draw visible states, by population annealing and Gibbs sweeps.

        Args:
            n: Number of draws.
            seed: Seed of the random numbers; by default the draws are new each time.

        Returns:
            Bits `(n, visible)`.

        Raises:
            SupportError: n is below 1, or the seed is not a whole number.
        """
        check_count("samples", n)
        return prior_bits(self.boltzmann(), n, read_seed(seed))[:, : self.visible]

    # Files --------------------------------------------------------------------------------------------

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all replicas to one `.safetensors` file, which :func:`softspin.load_boltzmann` reads.

        Args:
            path: The file.

        Returns:
            The file.

        Raises:
            SharingError: The file cannot be written, or has another ending.
        """
        from softspin.boltzmann_machine.files import write_model

        return write_model(self, Path(path))

    def to_rbms(self, path: str | os.PathLike[str]) -> Path:
        """Write the RBM to an HDF5 file of the package rbms.

        Args:
            path: The file, with the ending .h5.

        Returns:
            The file.

        Raises:
            SharingError: It is no RBM, or the file cannot be written.
            MissingExtraError: The package h5py is not installed.
        """
        from softspin.boltzmann_machine.hdf5 import write_rbms

        return write_rbms(self, Path(path))

    def _known_log_z(self) -> LogZ[Any]:
        """The estimate for the present parameters."""
        now = self.prior.bias[self.replica].cpu().clone(), self.prior.weight[self.replica].cpu().clone()
        if self._log_z is None or not all(map(torch.equal, self._log_z[0], now)):
            self._log_z = now, self.log_z()
        return self._log_z[1]

    def _data(self, x: Any) -> Tensor:
        rows = as_images(x, (self.visible,), check_binary, columns=self.columns)
        check_binary(rows)
        return rows.to(self.prior.bias)
