"""Counts of genes in single cells, with a negative binomial likelihood: python examples/single_cells.py --steps 4000.

The cells are made up: six types, each with its own mean of every gene, and counts that are negative binomial given the
type. The means follow the gamma distribution of Splatter (Zappia, Phipson and Oshlack 2017), the differences between
types are log-normal factors. The true distribution is known, so the model can be compared with the best possible one.
"""

import argparse

import torch
from torch.distributions import Gamma, LogNormal, NegativeBinomial

import softspin

DISPERSION = 2.0


def log_true(counts: torch.Tensor, means: torch.Tensor) -> torch.Tensor:
    """Log probability of counts `(cells, genes)` if all types, with means `(types, genes)`, are equally frequent."""
    genes = NegativeBinomial(torch.tensor(DISPERSION), logits=torch.log(means / DISPERSION))
    return genes.log_prob(counts[:, None]).sum(-1).logsumexp(-1) - torch.tensor(float(len(means))).log()


def main(steps: int = 4000, cells: int = 4000, genes: int = 30, seed: int = 0, folder: str = "runs/cells") -> float:
    """Train, and return the mean excess of the test NLL over that of the true distribution, in nats per cell."""
    torch.manual_seed(seed)
    means = Gamma(0.6, 0.1).sample((genes,)).clamp(min=0.1) * LogNormal(0.0, 1.0).sample((6, genes))
    kind = torch.randint(6, (cells,))
    counts = torch.poisson(means[kind] * Gamma(DISPERSION, DISPERSION).sample((cells, genes)))

    config = softspin.Config(likelihood="negative-binomial", groups=1, bits_per_group=16, layers=1, width=64)
    config = config.replace(
        steps=steps, learning_rate=0.003, chains=200, sweeps=5, importance_samples=8, test_samples=500
    )
    data = softspin.data.from_arrays(counts, name="made-up cells", binarize=False)
    model = softspin.fit(config, data, folder, progress=False)

    found = model.nll(data.test)
    excess = found.nll_per_image + log_true(data.test, means)
    error = float(excess.std()) / len(excess) ** 0.5
    print(f"test NLL {found.nll:.2f} +- {found.standard_error:.2f} nats per cell")
    print(f"with log Z at both ends of its interval: {found.lower:.2f} to {found.upper:.2f}")
    print(f"independent genes: {model.result[0].baseline_nll:.2f}")
    print(f"above the true distribution: {float(excess.mean()):.2f} +- {error:.2f} nats per cell")
    print(f"pictures: {folder}/samples.png, {folder}/curves.png")
    return float(excess.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="runs/cells")
    main(**vars(parser.parse_args()))
