# %% [markdown]
# # An own encoder
#
# `softspin.fit` takes nets of yours: one encoder for each group of bits, and a decoder. They are ordinary modules
# that map rows of features.

# %%
import torch
from torch import Tensor, nn

import softspin
import softspin.data

# %% [markdown]
# ## What a net is given, and gives
#
# The encoder of group g takes the centred image and the bits of the groups before it, joined in one row, and gives
# one logit for each bit of its group. The decoder takes all bits and gives one logit for each pixel; the pixels' mean
# is added to it. Here the first encoder is a small convolutional net:


# %%
class Convolutional(nn.Module):
    """Rows of 28 x 28 pixels to logits of bits."""

    def __init__(self, bits: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 8, 5, stride=2, padding=2), nn.ReLU(), nn.Conv2d(8, 16, 5, stride=2, padding=2), nn.ReLU()
        )
        self.head = nn.Linear(16 * 7 * 7, bits)

    def forward(self, rows: Tensor) -> Tensor:
        images = rows.reshape(-1, 1, 28, 28)
        return self.head(self.body(images).flatten(1)).reshape(*rows.shape[:-1], -1)


# %% [markdown]
# The second group sees the image and the first group's 16 bits, so its net has 784 + 16 inputs.

# %%
torch.manual_seed(0)  # custom networks take their first weights from torch's generator
encoder = [Convolutional(16), nn.Sequential(nn.Linear(784 + 16, 64), nn.ReLU(), nn.Linear(64, 16))]
config = softspin.Config(
    structure="2-nonlinear", bits_per_group=16, width=64, steps=60, batch_size=50, chains=50, sweeps=3,
    evaluate_every=30, checkpoint_every=30, validation_samples=5, test_samples=10, device="cpu",
)  # fmt: skip
model = softspin.fit(config, folder="own", encoder=encoder)
(row,) = model.result
print(f"test NLL {row.nll:.1f} +- {row.standard_error:.1f}; independent pixels {row.baseline_nll:.1f}")

# %% [markdown]
# A net of the wrong size is told before training begins:

# %%
try:
    softspin.fit(config, folder="wrong", encoder=[Convolutional(16), nn.Linear(784, 16)])
except softspin.SoftspinError as error:
    print(error)

# %% [markdown]
# Custom networks serve one replica, and a run with them cannot be loaded from its folder alone: see [Bring your own
# encoder](../howto/own-encoder.md).
