# %% [markdown]
# # A first model
#
# Real handwritten digits, a small model, a short training; then its likelihood with error bars, and its samples. It
# takes seconds on a CPU, so do not expect beauty: `softspin demo` trains for two minutes, the paper's recipe for a
# million steps.

# %%
import matplotlib.pyplot as plt
import torch

import softspin
import softspin.data

# %% [markdown]
# ## Train
#
# A config is one flat record; whatever is left alone follows the published recipe. Here: one group of 32 bits, so an
# RBM of 16 x 16, and few steps.

# %%
config = softspin.Config(
    data="digits", structure="1-nonlinear", bits_per_group=32, width=64, steps=250, chains=50, sweeps=3,
    evaluate_every=125, checkpoint_every=125, validation_samples=5, test_samples=20, device="cpu",
)  # fmt: skip
model = softspin.fit(config, folder="first")
print(model)

# %% [markdown]
# ## How good is it?
#
# `nll` is the negative log-likelihood of the *discrete* model: real bits, the Boltzmann machine itself as prior. This
# machine is small enough to sum, so log Z is exact; what is left is the error over test images, and that importance
# sampling is too high on average. Beside it: what independent pixels reach.

# %%
data = softspin.data.load("digits")
x = data.test[:200]
found = model.nll(x, samples=100)
print(f"NLL {found.nll.item():.1f} +- {found.standard_error.item():.1f} nats, log Z {found.log_z.kind}")

from softspin.evaluation import bernoulli_nll

print(f"independent pixels: {bernoulli_nll(data.train, x).nll.item():.1f} nats")
print(f"active bits: {found.active_bits.item():.0f} of {model.net.units}")

# %% [markdown]
# ## Bits, and back
#
# Every image has its bits; the decoder turns bits into pixel probabilities. Flip one bit and look at what changes.

# %%
bits = model.encode(x[:1])
flipped = bits.repeat(7, 1)
for row in range(1, 7):
    flipped[row, row] = 1 - flipped[row, row]
pictures = torch.cat([x[:1].float(), model.decode(flipped)])
names = ["image", "its bits", *(f"bit {n} flipped" for n in range(1, 7))]


def show(images: torch.Tensor, titles: list[str]) -> None:
    _, axes = plt.subplots(1, len(images), figsize=(9, 1.5), layout="constrained")
    for axis, image, title in zip(axes, images, titles, strict=True):
        axis.imshow(image.reshape(28, 28).numpy(), cmap="gray_r", vmin=0, vmax=1)
        axis.set_title(title, fontsize=7)
        axis.axis("off")


show(pictures, names)

# %% [markdown]
# ## Draw from it
#
# Samples of the Boltzmann machine, decoded.

# %%
show(model.sample(8), [""] * 8)

# %% [markdown]
# Next: [train on your own data](../howto/own-data.md), or [play with the model](../howto/playground.md) in a browser.
