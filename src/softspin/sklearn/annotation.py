"""Results of an estimator or a model in an AnnData object."""

from __future__ import annotations

from typing import Any

from softspin.data.inputs import is_anndata
from softspin.errors import DataError
from softspin.sklearn.encoder import BinaryEncoder
from softspin.trained import Model


def annotate(estimator: Any, data: Any, *, key: str = "softspin", condition: Any = None, scores: bool = True) -> None:
    """Write the codes and the log-likelihood of each row of an AnnData object into it.

    The codes are in `data.obsm["X_" + key]`, as other programs name representations; the log-likelihoods in nats are in
    `data.obs[key + "_log_likelihood"]`. The matrix `data.X` is not changed.

    Example:
        >>> from softspin.sklearn import BoltzmannMachine, annotate
        >>> annotate(BoltzmannMachine(binarize=0).fit(data), data)  # doctest: +SKIP
        >>> data.obsm["X_softspin"]  # doctest: +SKIP

    Args:
        estimator: A fitted :class:`BoltzmannMachine` or :class:`BinaryEncoder`, or a :class:`softspin.Model`, whose
            codes are its most probable bits.
        data: The AnnData object, in memory.
        key: Name of the results.
        condition: Condition of a model of p(x | c): the name of a column of `data.obs`, one for each row, or one for
            all.
        scores: Whether to write the log-likelihoods.

    Raises:
        DataError: The data are no AnnData object, or the estimator is no estimator, or one without the condition.
    """
    kind = type(estimator).__name__
    if not isinstance(estimator, Model) and not callable(getattr(estimator, "transform", None)):
        raise DataError(
            f"estimator is a {kind}, not a fitted BinaryEncoder, BoltzmannMachine or softspin.Model; "
            "annotate(estimator, data) takes the data second"
        )
    if not is_anndata(data):
        raise DataError(f"data are a {type(data).__name__}, not an AnnData object; use transform and score_samples")
    if isinstance(estimator, Model):
        codes = estimator.encode(data, condition=condition, sample=False).cpu().numpy()
        found = estimator.score_samples(data, condition=condition).cpu().numpy() if scores else None
    elif isinstance(estimator, BinaryEncoder):
        codes = estimator.transform(data, condition=condition)
        found = estimator.score_samples(data, condition=condition) if scores else None
    elif condition is not None:
        raise DataError(
            f"a {kind} has no condition; leave it out, or give a conditional BinaryEncoder or softspin.Model"
        )
    else:
        codes = estimator.transform(data)
        found = estimator.score_samples(data) if scores else None
    data.obsm[f"X_{key}"] = codes
    if found is not None:
        data.obs[f"{key}_log_likelihood"] = found
