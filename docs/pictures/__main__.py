"""Redraw the pictures of the documentation: python docs/pictures [--out FOLDER] [NAME ...]."""

from __future__ import annotations

import argparse
from pathlib import Path

import annealing
import bits
import boltzmann
from style import svg

PICTURES = {
    one.__name__.replace("_", "-"): one
    for one in (
        bits.flow,
        bits.soft_bit,
        bits.beta,
        bits.smoothings,
        boltzmann.mixture,
        boltzmann.mean_field,
        boltzmann.bounds,
        annealing.modes,
        annealing.ais,
        annealing.replicas,
    )
}

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent)
    parser.add_argument("names", nargs="*", help=", ".join(PICTURES))
    chosen = parser.parse_args()
    for name in chosen.names or PICTURES:
        (chosen.out / f"{name}.svg").write_text(svg(PICTURES[name]()))
