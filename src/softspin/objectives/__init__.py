"""What training maximises: bounds on log p(x), and the KL terms of DVAE and DVAE++."""

from softspin.objectives.bounds import elbo, importance_bound, log_weights
from softspin.objectives.kl import dvae_kl, dvaepp_kl

__all__ = ["dvae_kl", "dvaepp_kl", "elbo", "importance_bound", "log_weights"]
