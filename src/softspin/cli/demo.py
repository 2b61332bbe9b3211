"""`softspin demo`: a small model of real digits, trained, evaluated and drawn in about two minutes on two cores."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from softspin.cli.console import say, warn
from softspin.cli.options import Json, Seed
from softspin.cli.playground import write_page
from softspin.cli.runs import RUNS, free_folder
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
"""The paper's best method on 64 bits instead of 400, with fewer steps and chains; all else is the recipe."""


def demo(
    out: Annotated[
        Path | None, typer.Option(help="Folder of the run.", show_default="runs/demo, numbered if it exists")
    ] = None,
    steps: Annotated[int, typer.Option(help="Updates to make.", min=1)] = DEMO.steps,
    seed: Seed = 0,
    json: Json = False,
) -> None:
    """Train a small model on real digits in about two minutes, evaluate it, and draw what it learned."""
    config = DEMO.with_settings([f"steps={steps}", f"seeds={seed}"])
    folder = free_folder(RUNS / "demo") if out is None else new_folder(out, config)
    (row,) = run_training(config, folder, json=json)
    write_page(folder, folder / "playground.html")
    try:
        draw_soft_bits(folder / "softbits.png")
    except MissingExtraError as error:
        warn(f"no pictures: {error}")
    if not json:
        gain = (row.baseline_nll or 0.0) - row.test_nll
        say(f"That is {gain:.1f} nats better than independent pixels. Look at {folder / 'samples.png'}, and open")
        say(f"{folder / 'playground.html'} in a browser: draw, flip bits, let it dream. Then try:")
        say(f"  softspin info {folder}\n  softspin evaluate {folder} --samples 4000\n  softspin train --help")
