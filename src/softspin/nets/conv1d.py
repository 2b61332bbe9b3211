"""The convolutional network for sequences."""

from __future__ import annotations

from softspin.errors import ConfigError
from softspin.nets.conv import Conv
from softspin.nets.convolutions import Grid


class Conv1d(Conv):
    """:class:`Conv` along one axis, for sequences `(length,)` or `(length, channels)`, such as one-hot symbols.

    Kernels have 5 positions. Settings and arguments are those of :class:`Conv`.
    """

    name = "conv1d"

    @classmethod
    def grid_of(cls, shape: tuple[int, ...]) -> Grid:
        """Channels and length of data.

        Args:
            shape: Shape of one sequence.

        Returns:
            The grid.

        Raises:
            ConfigError: The data are not sequences.
        """
        if len(shape) > 2:
            raise ConfigError(
                f"net = {cls.name} needs sequences (length,) or (length, channels), but the data are arrays of shape "
                f"{list(shape)}; use net = conv for images, or net = mlp"
            )
        return Grid(shape[1] if len(shape) == 2 else 1, shape[:1], channels_last=True)
