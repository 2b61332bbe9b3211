"""Training objectives: lower bounds on log p(x), and the KL terms of DVAE and DVAE++."""

from softspin.objectives.bounds import elbo, importance_bound, log_weights
from softspin.objectives.exact import exact_bound, exact_gradient
from softspin.objectives.kl import discrete_kl, group_kls

__all__ = ["discrete_kl", "elbo", "exact_bound", "exact_gradient", "group_kls", "importance_bound", "log_weights"]
