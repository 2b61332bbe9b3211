"""Training objectives: lower bounds on log p(x), and the KL terms of DVAE and DVAE++."""

from softspin.objectives.bounds import elbo, importance_bound, log_weights
from softspin.objectives.kl import discrete_kl

__all__ = ["discrete_kl", "elbo", "importance_bound", "log_weights"]
