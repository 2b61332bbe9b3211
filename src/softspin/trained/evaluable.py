"""The likelihood of a trained model."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from softspin.data import as_images
from softspin.data.columns import check_columns
from softspin.data.condition_inputs import of_obs
from softspin.data.images import TRAINING, check_shape
from softspin.data.inputs import as_array
from softspin.distributions import Boltzmann
from softspin.errors import SupportError
from softspin.evaluation import Likelihood, evaluate, log_z_for
from softspin.evaluation.partition import check_log_z
from softspin.samplers import LogZ
from softspin.trained.arguments import read_log_z, read_mask, read_seed, single
from softspin.trained.given import one_given, read_given
from softspin.trained.shareable import Shareable


class Evaluable(Shareable):
    """A model with its likelihood and log Z. Arguments as in :class:`softspin.Model`."""

    _log_z: tuple[Boltzmann, LogZ] | None = None
    """The prior for which log Z was estimated, and the estimate."""

    def log_z(
        self, *, condition: Any = None, temperatures: int | None = None, chains: int | None = None, seed: int = 0
    ) -> LogZ[Any]:
        """Estimate log Z of the prior.

        log Z is exact for small Boltzmann machines. Otherwise it is estimated by annealed importance sampling in both
        directions, which brackets it.

        Args:
            condition: Condition c of a model of p(x | c), one; log Z is then that of p(z | c).
            temperatures: Annealing temperatures; by default the setting `test_temperatures`.
            chains: Annealed chains; by default the setting `test_chains`.
            seed: Seed of the random numbers.

        Returns:
            Value, interval and standard error: floats for one replica, tensors `(R,)` for several.

        Raises:
            SupportError: The parameters are too large for a finite log Z.

        Warns:
            LogZWarning: States were found that annealing misses; the interval is then one of bounds.
        """
        given = one_given(self.net, condition)
        values = None if given is None or self.net.condition is None else self.net.condition.nearest(given).tolist()
        found = self._estimate_log_z(temperatures, chains, read_seed(seed), values)
        if values is not None:
            found = found.of_value(values[0])
        return single(found) if self.net.replicas == 1 else found

    def nll(
        self,
        x: Any,
        *,
        condition: Any = None,
        samples: int | None = None,
        log_z: LogZ[Any] | None = None,
        seed: int = 0,
    ) -> Likelihood[Any]:
        """Estimate the negative log-likelihood by importance sampling.

        -log p(x) is estimated as -log 1/K sum_k p(x, z_k) / q(z_k | x), in nats. log Z of the prior is estimated at the
        first call and reused until the prior changes. A conditional model gives -log p(x | c), with log Z(c) of each
        value of the condition that occurs; `log_z` of the result is their mean, and the interval is that with all of
        them at their limits.

        Args:
            x: Images `(N, *shape)` or `(N, pixels)`, in any form that :func:`softspin.data.as_images` accepts. Gray
                levels are binarized with a fixed seed.
            condition: Condition of a model of p(x | c): one for each image, or one for all.
            samples: Importance samples K of each image; by default the setting `test_samples`.
            log_z: An estimate to use instead of the model's own.
            seed: Seed of the random numbers.

        Returns:
            Mean over images with its standard error, and the interval that follows from that of log Z: floats for one
            replica, tensors `(R,)` for several; `model.only("best").nll(x)` is that of one. `nll_per_image` has the NLL
            of every image, `(N,)` or `(R, N)`.

        Raises:
            ShapeError: The images do not have the model's number of pixels, there are none, or `log_z` does not have
                one value per replica.
            SupportError: A pixel value is outside the support of the likelihood.

        References:
            Burda, Grosse, Salakhutdinov (2016), Importance Weighted Autoencoders, arXiv:1509.00519.
        """
        rows, samples = self._images(x), self.config.test_samples if samples is None else samples
        seed = read_seed(seed)
        given = read_given(self.net, of_obs(x, condition), len(rows))
        if given is None or self.net.condition is None:
            known = self._known_log_z(seed) if log_z is None else read_log_z(log_z, self.net.replicas)
        elif log_z is not None:
            raise SupportError("a conditional model has log Z(c) of each value; leave out log_z")
        else:
            known = self._known_log_z(seed, self.net.condition.nearest(given).unique().tolist())
        options: dict[str, Any] = {"per_image": True, "diagnose": True, "condition": given}
        found = evaluate(self.net, rows, log_z=known, samples=samples, seed=seed, **options)
        return single(found) if self.net.replicas == 1 else found

    def _estimate_log_z(
        self, temperatures: int | None, chains: int | None, seed: int, values: Sequence[int] | None = None
    ) -> LogZ:
        config = self.config
        found = log_z_for(
            self.net,
            temperatures=config.test_temperatures if temperatures is None else temperatures,
            chains=config.test_chains if chains is None else chains,
            seed=seed,
            values=values,
        )
        check_log_z(found)
        return found

    def _known_log_z(self, seed: int, values: Sequence[int] | None = None) -> LogZ:
        """The estimate for the present prior, whose parameters a user may have changed since the last one.

        Of a conditional model, that of some values of the condition; the others may be NaN.
        """
        with torch.no_grad():
            prior = self.net.prior(validate=False)
            if self.net.condition is not None:
                prior = self.net.condition.spread(prior)
            now = prior.with_parameters(prior.bias.detach().clone(), prior.couplings.detach().clone())
        if self._log_z is not None:
            before, found = self._log_z
            same = before.bias.device == now.bias.device and before.bias.dtype == now.bias.dtype
            if same and torch.equal(before.bias, now.bias) and torch.equal(before.couplings, now.couplings):
                if values is None or not bool(found.value[:, values].isnan().any()):
                    return found
                new = [value for value in values if bool(found.value[:, value].isnan().any())]
                self._log_z = now, _merged(found, self._estimate_log_z(None, None, seed, new), new)
                return self._log_z[1]
        self._log_z = now, self._estimate_log_z(None, None, seed, values)
        return self._log_z[1]

    def _images(self, x: Any, missing: Any = None) -> Tensor:
        """Images of a user as `(N, pixels)`, checked; values of missing pixels are replaced by 0 and not checked."""
        if missing is not None:
            table = as_array("images", x)
            given = torch.from_numpy(table.array.copy())  # that of a DataFrame is read-only
            check_shape(tuple(given.shape), self.shape)
            check_columns("the data", table.columns, self.columns, TRAINING)
            rows = given.flatten(1)
            x = rows.masked_fill(read_mask(missing, len(rows), self.shape), 0).reshape(given.shape)
        likelihood = self.net.likelihood
        rows = as_images(x, self.shape, likelihood.check_data, binarize=likelihood.binary, columns=self.columns)
        likelihood.check_data(rows)
        return rows.to(self.net.mean)


def _merged(known: LogZ, more: LogZ, values: Sequence[int]) -> LogZ:
    """Estimates of log Z(c), `(R, V)`, with those of further values."""
    joined: list[Any] = []
    for old, new in zip(known, more, strict=True):
        if isinstance(old, Tensor) and isinstance(new, Tensor):
            merged = old.clone()
            merged[:, values] = new[:, values]
            joined.append(merged)
        else:
            joined.append(old)
    return LogZ._make(joined)
