"""Train a discrete VAE with a Boltzmann prior in your own PyTorch loop: python examples/own_loop.py --steps 300."""

import argparse

import torch
from torch import nn
from torch.nn.functional import binary_cross_entropy_with_logits
from torch.utils.data import DataLoader, RandomSampler, TensorDataset

import softspin
from softspin.objectives import importance_bound, log_weights
from softspin.samplers import PopulationAnnealing, with_negative_phase


def main(steps: int = 3000, seed: int = 0, bits: int = 32, samples: int = 5, batch: int = 100) -> float:
    """Train, and return the test NLL in nats."""
    torch.manual_seed(seed)
    data = softspin.data.load("digits8x8")
    shuffled = RandomSampler(data.train, num_samples=steps * batch)  # epoch after epoch, until there are enough
    loader = DataLoader(TensorDataset(data.train), batch, sampler=shuffled)
    mean = data.pixel_mean()
    base = torch.logit(mean.clamp(1e-3, 1 - 1e-3))  # the decoder learns the difference to the average image

    encoder = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, bits))
    decoder = nn.Sequential(nn.Linear(bits, 128), nn.ReLU(), nn.Linear(128, 64))
    rbm = nn.ParameterDict({"bias": torch.zeros(bits), "weight": torch.zeros(bits // 2, bits // 2)})
    adam = torch.optim.Adam([*encoder.parameters(), *decoder.parameters(), *rbm.parameters()], lr=3e-3, eps=1e-3)
    sampler = PopulationAnnealing()  # draws from the prior, for the gradient of its log Z
    state = sampler.init(softspin.BipartiteBoltzmann(**rbm), chains=500, seed=seed)

    for step, (gray,) in enumerate(loader):
        x = torch.bernoulli(gray)  # gray levels are pixel probabilities
        prior = softspin.BipartiteBoltzmann(**rbm)
        state, _ = sampler.step(state, prior.detach(), sweeps=10)
        prior = with_negative_phase(prior, sampler.samples(state), sampler.log_z(state))  # log Z with its gradient
        relaxed = softspin.OverlapRelaxation(prior)  # p(zeta)
        posterior = softspin.SmoothedBernoulli(encoder(x - mean), softspin.smoothing.Power(beta=10.0))  # q(zeta|x)
        soft = posterior.draw((samples,))  # reparameterized, (samples, batch, bits)
        logits = decoder(soft.zeta) + base
        pixels = binary_cross_entropy_with_logits(logits, x.expand_as(logits), reduction="none")
        kl_weight = min(1.0, step / (0.3 * steps))  # warm-up
        w = log_weights(-pixels.sum(-1), relaxed.log_ratio(soft), posterior.log_ratio(soft).sum(-1), kl_weight)
        loss = -importance_bound(w).mean()
        adam.zero_grad()
        loss.backward()
        adam.step()

    # The discrete model, without smoothing or relaxation. It also samples, encodes and fills in missing pixels.
    model = softspin.Model.from_parts([encoder], decoder, softspin.BipartiteBoltzmann(**rbm), data)
    result = model.nll(data.test, samples=1000)
    print(f"loss {loss.item():.2f}, test NLL {result.nll:.2f} +- {result.standard_error:.2f} nats")
    return result.nll


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=0)
    main(**vars(parser.parse_args()))
