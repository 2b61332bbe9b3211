"""`softspin demo`: train, evaluate and plot a small model of digits, in a few minutes on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, warn
from softspin.cli.options import Json, Seed
from softspin.cli.playground import write_page
from softspin.cli.runs import RUNS
from softspin.cli.softbits import draw_soft_bits
from softspin.cli.train import new_folder, run_training
from softspin.config import Config
from softspin.errors import MissingExtraError

DEMO = Config(
    data="digits",
    method="dvae#-power",
    structure="2-nonlinear",
    bits_per_group=32,
    steps=2000,
    chains=200,
    sweeps=10,
    evaluate_every=250,
    checkpoint_every=250,
    validation_temperatures=200,
    validation_chains=200,
    test_samples=1000,
    test_temperatures=2000,
    test_chains=200,
    device="cpu",
)
"""The paper's best method with 64 bits instead of 400, and fewer steps and chains; otherwise the recipe."""


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Run directory.", show_default="runs/demo, with a number if it exists")
    ] = None,
    steps: Annotated[int, typer.Option(help="Set the number of training steps.", min=1)] = DEMO.steps,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a small model of handwritten digits in a few minutes, evaluate it, and plot samples."""
    config = DEMO.with_settings([f"steps={steps}", f"seeds={seed}"])
    with new_folder(out, RUNS / "demo") as folder:
        (row,) = run_training(config, folder, json=json)
    write_page(folder, folder / "playground.html")
    drawn: list[Path] = []
    try:
        drawn = [draw_soft_bits(folder / "softbits.png")]
    except MissingExtraError as error:
        warn(f"no pictures: {error}")
    if not json:
        say(f"also written: {', '.join(path.name for path in [folder / 'playground.html', *drawn])}")
        gain = (row.baseline_nll or 0.0) - row.test_nll
        say(f"That is {gain:.1f} nats better than independent pixels. Look at {folder / 'samples.png'}, and open")
        say(f"{folder / 'playground.html'} in a browser: draw a digit, flip its bits, sample the prior. Then try:")
        say(f"  softspin info {folder}\n  softspin evaluate {folder} --samples 4000\n  softspin train --help")
