# %% [markdown]
# # A new smoothing
#
# A family whose two components are mirror images is five short methods. Here: r(ζ|0) = β (1 - ζ)^(β - 1), a triangle
# at β = 2 and a steep slope above.

# %%
import matplotlib.pyplot as plt
import torch
from torch import Tensor

from softspin import SmoothedBernoulli
from softspin.smoothing import UnitInterval

# %% [markdown]
# A point has two coordinates: `own`, the log distance from the component's mode, and `other`, the log distance from
# the opposite one. For z = 0 these are log ζ and log (1 - ζ). So log r = log β + (β - 1) other, the mass behind a
# point is 1 - (1 - ζ)^β, and a draw is 1 - ζ = ρ^(1/β).


# %%
class Slope(UnitInterval):
    """r(zeta|0) = beta (1 - zeta)^(beta - 1), r(zeta|1) its mirror image."""

    name = "slope"
    lowest_beta = 1.0

    def quantile(self, rho: Tensor) -> Tensor:
        return torch.log(-torch.expm1(rho.log() / self.beta))

    def log_density(self, own: Tensor, other: Tensor) -> Tensor:
        return torch.log(self.beta) + (self.beta - 1) * other

    def component_cdf(self, own: Tensor, other: Tensor) -> Tensor:
        return -torch.expm1(self.beta * other)

    def component_sf(self, own: Tensor, other: Tensor) -> Tensor:
        return torch.exp(self.beta * other)

    def component_cdf_beta(self, own: Tensor, other: Tensor) -> Tensor:
        return -other * torch.exp(self.beta * other)


# %% [markdown]
# ## Is it right?
#
# Never against itself: the density must integrate to its own CDF, and the mean gradient of a draw must be the
# difference of the components' means, which for this family is (β - 1) / (β + 1) by hand.

# %%
beta = 6.0
posterior = SmoothedBernoulli(torch.zeros((), dtype=torch.float64), Slope(beta))
zeta = torch.linspace(0, 1, 20_001, dtype=torch.float64)[1:-1]
density = posterior.log_prob(zeta).exp()
integral = torch.cumulative_trapezoid(density, zeta) + posterior.cdf(zeta[0])
print(f"density against CDF: {(integral - posterior.cdf(zeta[1:])).abs().max().item():.1e}")

logits = torch.zeros(200_000, dtype=torch.float64, requires_grad=True)
draws = SmoothedBernoulli(logits, Slope(beta)).draw(generator=torch.Generator().manual_seed(0))
(gradient,) = torch.autograd.grad(draws.zeta.sum(), logits)
slope = gradient / 0.25  # d zeta / d q, as dq/d logit = q (1 - q)
error = slope.std() / len(slope) ** 0.5
print(f"E[d zeta / d q] = {slope.mean().item():.4f} +- {error.item():.4f}, by hand {(beta - 1) / (beta + 1):.4f}")

# %%
figure, axis = plt.subplots(figsize=(5, 2.5), layout="constrained")
for value in (2.0, 6.0, 20.0):
    one = SmoothedBernoulli(torch.zeros((), dtype=torch.float64), Slope(value))
    axis.plot(zeta, one.log_prob(zeta).exp(), label=f"β = {value:g}")
axis.set(xlabel="ζ", ylabel="density at q = 1/2", ylim=(0, 8))
axis.legend()

# %% [markdown]
# ## Into the house
#
# To make it a part of softspin, put it into `src/softspin/smoothing/`, add it to `SMOOTHINGS`, and to `CASES` in
# `tests/truth.py`: every law test then runs on it. See [Add a part](../howto/add-a-part.md).
