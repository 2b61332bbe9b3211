"""Aligned sequences of amino acids, with a categorical likelihood: python examples/protein_sequences.py --steps 4000.

The sequences are made up: four families, each with its own frequencies of the twenty amino acids at every position,
drawn from a Dirichlet distribution as site profiles of alignments are modelled (Sjolander et al. 1996). The true
distribution is known, so the model can be compared with the best possible one.
"""

import argparse

import torch
from torch.distributions import Categorical, Dirichlet

import softspin

LETTERS = "ACDEFGHIKLMNPQRSTVWY"


def main(steps: int = 4000, count: int = 4000, length: int = 20, seed: int = 0, folder: str = "runs/proteins") -> float:
    """Train, and return the mean excess of the test NLL over that of the true distribution, in nats per sequence."""
    torch.manual_seed(seed)
    profiles = Dirichlet(torch.full((len(LETTERS),), 0.1)).sample((4, length))
    family = torch.randint(4, (count,))
    sequences = Categorical(profiles[family]).sample()

    config = softspin.Config(likelihood="categorical", categories=len(LETTERS), groups=1, bits_per_group=16)
    config = config.replace(layers=1, width=64, steps=steps, learning_rate=0.003, chains=200, sweeps=5)
    config = config.replace(importance_samples=8, test_samples=500)
    data = softspin.data.from_arrays(sequences, name="made-up proteins", binarize=False)
    model = softspin.fit(config, data, folder, progress=False)

    found = model.nll(data.test)
    test = data.test.long()
    log_p = torch.stack([Categorical(one).log_prob(test).sum(-1) for one in profiles]).logsumexp(0)
    excess = found.nll_per_image + log_p - torch.tensor(4.0).log()
    error = float(excess.std()) / len(excess) ** 0.5
    print(f"test NLL {found.nll:.2f} +- {found.standard_error:.2f} nats per sequence")
    print(f"with log Z at both ends of its interval: {found.lower:.2f} to {found.upper:.2f}")
    print(f"independent positions: {model.result[0].baseline_nll:.2f}")
    print(f"above the true distribution: {float(excess.mean()):.2f} +- {error:.2f} nats per sequence")
    for row in model.sample(3, seed=0).int().tolist():
        print("sample  ", "".join(LETTERS[letter] for letter in row))
    print(f"pictures: {folder}/samples.png, {folder}/curves.png")
    return float(excess.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=4000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="runs/proteins")
    main(**vars(parser.parse_args()))
