# %% [markdown]
# # Own data
#
# Anything that is an array of shape (images, ...) with bits or grey levels in [0, 1] can be trained on. Here: rings
# and discs of random size, made up on the spot.

# %%
import numpy as np

import softspin
import softspin.data

random = np.random.default_rng(0)
y, x = np.mgrid[-1:1:12j, -1:1:12j]
distance = np.sqrt(x**2 + y**2)


def shape() -> np.ndarray:
    radius = random.uniform(0.3, 1.0)
    return distance < radius if random.random() < 0.5 else abs(distance - radius) < 0.2


images = np.stack([shape() for _ in range(600)])
print(images.shape, images.dtype)

# %% [markdown]
# ## From arrays
#
# Only training images were given, so a tenth each becomes validation and test set, after a shuffle with a fixed seed.
# Values that are all 0 or 1 make a *static* set.

# %%
data = softspin.data.from_arrays(images, name="rings and discs")
print(data)

# %% [markdown]
# Grey levels are binarized anew for every batch in training, and once, with a fixed seed, for validation and test: a
# likelihood must be a number that can be computed again.

# %%
print(softspin.data.from_arrays(images * 0.8, name="grey"))

# %% [markdown]
# ## Train, and judge

# %%
config = softspin.Config(
    structure="1-nonlinear", bits_per_group=16, width=32, steps=200, chains=50, sweeps=3,
    evaluate_every=100, checkpoint_every=100, validation_samples=10, test_samples=100, device="cpu",
)  # fmt: skip
model = softspin.fit(config, data, folder="rings")
(row,) = model.result
print(f"test NLL {row.nll:.2f} +- {row.standard_error:.2f}; independent pixels {row.baseline_nll:.2f}")

# %% [markdown]
# ## From a file
#
# The same on the command line: save the array, and give its path. A `.npz` with arrays `train`, `valid` and `test`
# keeps your own split.

# %%
np.save("rings.npy", images)
print(softspin.data.load("rings.npy"))

# %% [markdown]
# ```
# softspin train my-run --data rings.npy --steps 20000
# ```
#
# What cannot be images of bits ends in one line that says what would be right:

# %%
try:
    softspin.data.from_arrays(255 * images)
except softspin.SoftspinError as error:
    print(error)
