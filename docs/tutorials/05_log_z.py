# %% [markdown]
# # log Z by four ways
#
# A machine of 10 + 10 units is small enough to sum and large enough to fool an annealing that is too quick. So we can
# watch four estimators next to the truth.

# %%
import torch

from softspin import BipartiteBoltzmann
from softspin.samplers import LogZ, anneal_population, log_z

weight = 2.5 * torch.randn(10, 10, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
boltzmann = BipartiteBoltzmann(-torch.cat([weight.sum(1), weight.sum(0)]) / 2, weight)
truth = log_z.exact(boltzmann).value


def tell(found: LogZ) -> None:
    low, value, high = (float(x - truth) for x in (found.lower, found.value, found.upper))
    print(f"{found.method:12} {value:+.3f} [{low:+.3f}, {high:+.3f}]  {found.kind}")


# %% [markdown]
# ## One run of each
#
# Everything is printed relative to the exact value.

# %%
tell(log_z.exact(boltzmann))
tell(log_z.ais(boltzmann, seed=0, temperatures=50, chains=200))
population, state, info = anneal_population(boltzmann, members=1000, seed=0, sweeps=2)
tell(population)
tell(log_z.reverse_ais(boltzmann, state.z, seed=0, temperatures=50, family_correlation=info.mean_square_family))
tell(log_z.sandwich(boltzmann, seed=0, temperatures=50, chains=200))

# %% [markdown]
# ## Why AIS flatters, measured
#
# Now 200 runs of forward AIS at once: the same machine as 200 replicas. Their mean lies below the truth, and a
# likelihood computed with it is too good by as much. More temperatures help; more images, or a smaller standard error
# over images, do not.

# %%
many = BipartiteBoltzmann(boltzmann.bias.expand(200, -1).clone(), boltzmann.weight.expand(200, -1, -1).clone())
for temperatures in (3, 10, 30, 100):
    runs = log_z.ais(many, seed=1, temperatures=temperatures, chains=10).value - truth
    error = runs.std() / len(runs) ** 0.5
    print(f"{temperatures:4} temperatures: {runs.mean():+.3f} +- {error:.3f} nats")

# %% [markdown]
# The weights themselves are fair: the mean of e^(value), not of the value, is Z.

# %%
ratio = torch.exp(log_z.ais(many, seed=2, temperatures=30, chains=10).value - truth)
print(f"E[Z estimate] / Z = {ratio.mean():.3f} +- {ratio.std() / len(ratio) ** 0.5:.3f}")

# %% [markdown]
# More: [log Z, and why AIS flatters](../concepts/log-z.md).
