"""Format results as text, for the terminal, model cards and model pages."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any, Protocol

from softspin import paper
from softspin.config import Config, migrate, plain
from softspin.records import ResultRow, best_replica
from softspin.structures import STRUCTURES


class Trained(Protocol):
    """Identification of a replica in a run: a row, or a `Replica` of a config."""

    @property
    def seed(self) -> int: ...

    @property
    def beta(self) -> float | None: ...


def replica_name(replica: Trained) -> str:
    """Name a replica by its seed, beta, and the other settings in which replicas differ.

    Args:
        replica: A row, or a `Replica` of a config.

    Returns:
        The name.

    Example:
        >>> from softspin.config import Replica
        >>> replica_name(Replica(seed=3, beta=30.0))
        'seed 3, beta 30'
    """
    settings: Sequence[tuple[str, Any]] = getattr(replica, "settings", ())
    others = "".join(f", {name} {'none' if value is None else f'{value:g}'}" for name, value in settings)
    return f"seed {replica.seed}" + ("" if replica.beta is None else f", beta {replica.beta:g}") + others


def mark_best(valid_nll: Sequence[float | None], variants: Sequence[object], number: int) -> str:
    """A remark for the best replica of a grid of beta, or of other variants.

    >>> mark_best([84.2, 83.9], (20.0, 30.0), 1), mark_best([84.2, 83.9], (20.0, 30.0), 0)
    (' (lowest validation NLL)', '')
    """
    return " (lowest validation NLL)" if len(variants) > 1 and number == best_replica(valid_nll) else ""


def result_line(row: ResultRow, part: str = "test") -> str:
    """Format the result of one replica, with that of independent pixels for comparison.

    Args:
        row: The result.
        part: Part of the data set on which it was evaluated.

    Returns:
        One line.

    Example:
        >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, standard_error=0.05,
        ...                 log_z=30, log_z_low=29.9, log_z_high=30.1, baseline_nll=206.1)
        >>> result_line(row)
        'test NLL 84.20 +- 0.05, log Z in [29.90, 30.10]; independent pixels: 206.10'
    """
    if row.status == "validated":
        averaged = ", averaged parameters" if row.averaged else ""
        return f"validation NLL {number(row.valid_nll)} at step {row.best_step or 0:,}{averaged}"
    nll = f"{number(row.nll)} +- {error_text(row)}{unit_text(row)}"
    found = f"{part} NLL {nll}, {log_z_text(row)}; {baseline_name(row)}: {number(row.baseline_nll)}"
    return found if row.warning is None else f"{found}; WARNING: {row.warning}"


def unit_text(row: ResultRow) -> str:
    """The unit of an NLL that is not that of binary pixels, and the NLL in bits per dimension of 8-bit images.

    >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, unit="nats of a density")
    >>> unit_text(row)
    ' nats of a density'
    """
    bits = "" if row.bits_per_dimension is None else f" ({row.bits_per_dimension:.3f} bits per dimension)"
    return "" if row.unit is None else f" {row.unit}{bits}"


def baseline_name(row: ResultRow) -> str:
    """Name of the baseline of a result."""
    return "independent pixels" if row.unit is None else "independent features"


def error_text(row: ResultRow) -> str:
    """Format the standard error of a result over images; a single image has none.

    >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, images=1)
    >>> error_text(row)
    '? (one image)'
    """
    return number(row.standard_error) + (" (one image)" if row.standard_error is None and row.images == 1 else "")


def result_sentence(rows: Sequence[ResultRow] | None) -> str:
    """The result of a run in one sentence, with one row for each replica; None: it was not evaluated.

    >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, standard_error=0.05, log_z=30,
    ...                 log_z_low=29.9, log_z_high=30.1, baseline_nll=206.1)
    >>> print(result_sentence([row]))
    Test NLL 84.20 ± 0.05 nats, log Z in [29.90, 30.10]; 121.90 nats better than independent pixels (206.10 nats).
    >>> print(result_sentence([row, row]))
    Test NLL 84.20 nats, mean of 2 replicas (84.20 to 84.20); 121.90 nats better than independent pixels (206.10 nats).
    >>> print(result_sentence(None))
    Not evaluated on test images.
    """
    if not rows:
        return "Not evaluated on test images."
    first, nll = rows[0], fmean(row.test_nll for row in rows)
    if len(rows) == 1:
        text = f"Test NLL {nll:.2f} ± {error_text(first)}{unit_text(first) or ' nats'}, {log_z_text(first)}"
    else:
        ends = [f"{end(row.test_nll for row in rows):.2f}" for end in (min, max)]
        text = f"Test NLL {nll:.2f} {first.unit or 'nats'}, mean of {len(rows)} replicas ({' to '.join(ends)})"
    if warned := [row.warning for row in rows if row.warning is not None]:
        text += f"; WARNING: {warned[0]}"
    if first.baseline_nll is None:
        return f"{text}."
    gain = first.baseline_nll - nll
    compared = f"{abs(gain):.2f} nats {'better' if gain >= 0 else 'worse'} than {baseline_name(first)}"
    return f"{text}; {compared} ({first.baseline_nll:.2f} {first.unit or 'nats'})."


def log_z_text(row: ResultRow) -> str:
    """Format log Z of a result with its interval."""
    return log_z_interval(row.log_z, row.log_z_low, row.log_z_high)


def log_z_interval(value: float | None, low: float | None, high: float | None) -> str:
    """Format log Z with its interval.

    Args:
        value: The estimate.
        low: Lower end. None is minus infinity.
        high: Upper end. None is infinity. Equal ends mean an exact value.

    Returns:
        The text.

    Example:
        >>> log_z_interval(2.0, 2.0, 2.0), log_z_interval(2.0, None, 2.5)
        ('log Z = 2.00 (exact)', 'log Z in [-inf, 2.50]')
        >>> log_z_interval(2.0, 1.5, None)
        'log Z >= 1.50 (upper end unknown)'
    """
    if low is not None and low == high:
        return f"log Z = {number(value)} (exact)"
    if low is not None and high is None:
        return f"log Z >= {low:.2f} (upper end unknown)"
    return f"log Z in {interval_text(-math.inf if low is None else low, math.inf if high is None else high)}"


def interval_text(low: float, high: float) -> str:
    """Format an interval with two decimals, or with as many more as it takes to tell its ends apart.

    >>> interval_text(21.5, 22.25), interval_text(22.19301, 22.19342)
    ('[21.50, 22.25]', '[22.1930, 22.1934]')
    """
    return f"[{', '.join(distinct(low, high))}]"


def distinct(*values: float) -> list[str]:
    """Format numbers with two decimals, or with as many more (up to nine) as it takes to tell them apart.

    >>> distinct(22.1934, 22.1938), distinct(1.0, 1.0)
    (['22.193', '22.194'], ['1.00', '1.00'])
    """
    for digits in range(2, 10):
        texts = [f"{value:.{digits}f}" for value in values]
        if len(set(texts)) == len(set(values)):
            return texts
    return [f"{value:.2f}" for value in values]


def with_error(value: float, error: float) -> str:
    """Format a number with its standard error: two decimals, or more if the error would be 0.00. NaN is no error.

    >>> with_error(84.2, 0.05), with_error(22.193, 0.00031), with_error(1.0, 0.0)
    ('84.20 +- 0.05', '22.19300 +- 0.00031', '1.00 +- 0')
    """
    if math.isnan(error):
        return f"{value:.2f}"
    if not math.isfinite(error) or error <= 0:
        return f"{value:.2f} +- {error:g}"
    digits = 2 if error >= 0.005 else min(9, 1 - math.floor(math.log10(error)))
    return f"{value:.{digits}f} +- {error:.{digits}f}"


def detail_lines(row: ResultRow) -> list[str]:
    """Format the terms of the bound and the sample sizes of an estimate."""
    lines, low, high = [], row.nll_low, row.nll_high
    if low is not None and high is not None and "exact" not in log_z_text(row):
        lines.append(f"NLL over the interval of log Z: {low:.2f} to {high:.2f}")
    elif low is not None and "exact" not in log_z_text(row):
        lines.append(f"NLL over the interval of log Z: at least {low:.2f}")
    lines.append(f"ELBO {number(row.elbo)} = reconstruction {number(row.reconstruction)} - KL {number(row.kl)}")
    active, size = number(row.active_bits, ".0f"), number(row.effective_sample_size, ".1f")
    if row.condition is not None:
        lines.append(f"given c: {row.condition}; {values_text(row)}")
    samples, images = (
        number(row.test_samples, ","),
        number(row.images, ",") + (" image" if row.images == 1 else " images"),
    )
    lines.append(f"{active} active bits; effective sample size {size} of {samples}; {images}")
    return lines + importance_lines(row)


def values_text(row: ResultRow) -> str:
    """The range of log Z(c) over the values of the condition, with the widest interval.

    >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, log_z_of_values={
    ...     "value": [0, 1], "images": [5, 5], "log_z": [30.0, 31.0], "low": [29.9, 31.0], "high": [30.1, 31.0]})
    >>> values_text(row)
    'log Z(c) of 2 values from 30.00 to 31.00, intervals of up to 0.20'
    """
    found = row.log_z_of_values or {}
    given = [found.get(name) for name in ("log_z", "low", "high")]
    values, lows, highs = (one if isinstance(one, list | tuple) else () for one in given)  # a row may be untrusted
    if not values or not all(isinstance(one, int | float) for one in values):
        return "log Z(c) unknown"
    text = f"log Z(c) of {len(values)} values from {min(values):.2f} to {max(values):.2f}"
    if len(lows) != len(highs) or not lows or not all(isinstance(one, int | float) for one in [*lows, *highs]):
        return f"{text}, upper ends unknown"
    widest = max(high - low for low, high in zip(lows, highs, strict=True))
    return f"{text}, exact" if not widest else f"{text}, intervals of up to {widest:.2f}"


def importance_lines(row: ResultRow) -> list[str]:
    """Format the diagnostics of the importance weights, and the comparison with more samples, as far as there are any.

    >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, pareto_k=0.41,
    ...                 unreliable_images=0.021, importance_bias=0.004, importance_missed=0.0)
    >>> print(importance_lines(row)[0])
    importance weights: Pareto k 0.41, above 0.7 for 2.1% of the images; NLL too high by about 0.004
    """
    if row.importance_bias is None:
        return more_samples_lines(row)
    shape = "" if row.pareto_k is None else f"Pareto k {row.pareto_k:.2f}, "
    shape += "" if row.unreliable_images is None else f"above 0.7 for {row.unreliable_images:.1%} of the images; "
    missed = f", and by {row.importance_missed:.3f} or more for states missed" if row.importance_missed else ""
    return [
        f"importance weights: {shape}NLL too high by about {row.importance_bias:.3f}{missed}",
        *more_samples_lines(row),
    ]


def more_samples_lines(row: ResultRow) -> list[str]:
    """Format the comparison with more importance samples; no line if there is none.

    >>> from softspin.records import PairedRecord
    >>> compared = PairedRecord(test_samples=64000, images=500, difference=0.2512, standard_error=0.0123)
    >>> row = ResultRow(status="ok", seed=0, steps=10, short=True, variant={}, nll=84.2, test_samples=4000,
    ...                 more_samples=compared)
    >>> print(more_samples_lines(row)[0])
    64,000 samples instead of 4,000: NLL of 500 images 0.25 +- 0.01 lower (paired)
    """
    found = row.more_samples
    if found is None:
        return []
    error = math.nan if found.standard_error is None else found.standard_error
    size = with_error(abs(found.difference), error)
    lower = "lower" if found.difference >= 0 else "higher"
    images = f"{found.images:,} image" + ("" if found.images == 1 else "s")
    samples = f"{found.test_samples:,} samples instead of {number(row.test_samples, ',')}"
    return [f"{samples}: NLL of {images} {size} {lower} (paired)"]


def number(value: float | None, form: str = ".2f") -> str:
    """Format a number, or a question mark if it is unknown.

    Args:
        value: The number. None is unknown.
        form: Format specification.

    Returns:
        The text.

    Example:
        >>> number(84.204), number(4000, ","), number(None)
        ('84.20', '4,000', '?')
    """
    return "?" if value is None else format(value, form)


def config_overrides(config: Config) -> dict[str, Any]:
    """Find the settings that differ from the published recipe. beta is compared with the default of the method."""
    recipe = config.defaults() | {name: plain(value) for name, value in migrate(paper.RECIPE).items()}
    return {name: value for name, value in config.settings().items() if value != recipe[name]}


def overrides_text(overrides: Mapping[str, Any]) -> str:
    """Format settings on one line.

    Args:
        overrides: Values by name, as from :func:`config_overrides`.

    Returns:
        The line. Long values are truncated.

    Example:
        >>> overrides_text({"bits_per_group": 6, "seeds": [0, 1]}), overrides_text({})
        ('bits_per_group = 6, seeds = [0, 1]', 'no changes')
    """
    return ", ".join(f"{name} = {_short(value)}" for name, value in overrides.items()) or "no changes"


def structure_text(config: Config) -> str:
    """Name and sizes of a structure; only the sizes if no structure has them.

    Args:
        config: Settings of a run.

    Returns:
        The text.

    Example:
        >>> structure_text(Config(groups=1)), structure_text(Config(bits_per_group=32))
        ('1-nonlinear: 1 x 200 bits, 2 layers of 200', '2 x 32 bits, 2 layers of 200')
    """
    named = config.structure_name in STRUCTURES
    return f"{config.structure_name}: {config.shape}" if named else str(config.shape)


def _short(value: Any) -> str:
    text = "none" if value is None else str(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def duration(seconds: float) -> str:
    """Format seconds.

    Args:
        seconds: The time.

    Returns:
        The text.

    Example:
        >>> duration(7), duration(605), duration(7500), duration(10**7)
        ('7 s', '10 min', '2 h 5 min', '2,778 h')
    """
    hours, rest = divmod(round(seconds), 3600)
    minutes, rest = divmod(rest, 60)
    if hours >= 24:
        return f"{round(seconds / 3600):,} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min" if minutes >= 10 else f"{minutes} min {rest} s" if minutes else f"{rest} s"


def printable_text(text: str) -> str:
    r"""Text with a replacement character for each control character and each byte that is not text.

    Args:
        text: Such as the name of a file, which may have any bytes.

    Returns:
        Text that can be shown and stored as UTF-8.

    Example:
        >>> printable_text("my\x1b[2Jdata.npy").encode()
        b'my\xef\xbf\xbd[2Jdata.npy'
    """
    return "".join(one if one.isprintable() else "\ufffd" for one in text)
