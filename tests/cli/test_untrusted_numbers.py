"""Numbers that cannot be right end in an error or a warning: overflowing parameters, a stored log Z below a bound."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
import torch
from cli.command import Call

import softspin
from softspin.samplers import LogZWarning


@pytest.mark.parametrize(("part", "large"), [("decoder", 3e38), ("prior_parameters", 3e38), ("prior_parameters", 1e9)])
def test_parameters_that_overflow_are_an_error(part: str, large: float, tiny: Path, tmp_path: Path, call: Call) -> None:
    """Energies of 1e9 are finite, but rounded to multiples of 64: the NLL, their difference, would mean nothing."""
    model = softspin.load(tiny)
    with torch.no_grad():
        for name, value in model.net.named_parameters():
            if name.startswith(part):
                value.fill_(large)
    model.metadata = dataclasses.replace(model.metadata, result=None) if model.metadata else None
    model.save(tmp_path / "huge.safetensors")
    ended = call("evaluate", tmp_path / "huge.safetensors")
    assert ended.code == 1
    assert "too large for floating point" in ended.err
    assert len(ended.err.strip().splitlines()) == 1
    assert ended.out == ""
    if part != "decoder":
        assert "too large for floating point" in call("logz", tmp_path / "huge.safetensors").err
        assert call("evaluate", tmp_path / "huge.safetensors", "--exact").code == 1


@pytest.mark.filterwarnings("default::softspin.samplers.LogZWarning")
def test_a_stored_log_z_below_the_bound_is_corrected_and_reported(tiny: Path, tmp_path: Path, call: Call) -> None:
    """Of 6 bits the search finds all states, so the bound is log Z itself, and the NLL is the one of the run."""
    model = softspin.load(tiny)
    assert model.metadata is not None
    rows = model.result
    assert rows is not None
    lower = {"nll": -5, "nll_low": -5, "nll_high": -5, "log_z": -5, "log_z_low": -5, "log_z_high": -5}
    forged = [
        dataclasses.replace(row, **{name: getattr(row, name) + shift for name, shift in lower.items()}) for row in rows
    ]
    model.metadata = dataclasses.replace(model.metadata, result=tuple(forged))
    model.save(tmp_path / "low.safetensors")
    with pytest.warns(LogZWarning, match="the stored log Z is at most .*, but states were found"):
        found = softspin.load(tmp_path / "low.safetensors").result
    assert found is not None
    for row, right in zip(found, rows, strict=True):
        assert row.nll == pytest.approx(right.nll, abs=1e-5)
        assert row.log_z_low == pytest.approx(right.log_z, abs=1e-5)
        assert (row.log_z_high, row.nll_high) == (None, None)
    ended = call("info", tmp_path / "low.safetensors")
    assert ended.code == 0
    assert "upper end unknown" in ended.out
    assert "WARNING" in ended.out
    assert "warning: seed 0: the stored log Z is at most" in ended.err
