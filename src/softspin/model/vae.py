"""The discrete variational autoencoder: encoder nets, decoder, likelihood, prior and method."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from softspin.conditions import Condition, Given
from softspin.data.conditions import ConditionTable
from softspin.deprecation import renamed_attribute
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError
from softspin.likelihoods import Likelihood
from softspin.methods import Method
from softspin.model.reconstruction import Reconstruction
from softspin.nets import Linear, Net, as_net
from softspin.nets.detached import Features, detached_call
from softspin.priors import Prior


class Flips:
    """Bits of the encoder's input that are flipped in a training step. No module, so that compiled code can set it."""

    at: Tensor | None
    """Booleans, `(R, batch, features)`; None outside a training step."""

    def __init__(self) -> None:
        self.at = None  # not of the class: torch.compile would compile again after the first step


class DiscreteVAE(nn.Module):
    """R models of one shape, trained side by side.

    The encoder has one net per group. The net of group g takes the data, centered or as the likelihood prepares
    them, `(R, 1, batch, features)`, and the bits
    of the groups before it `(R, K, batch, (g - 1) bits)`, as separate arguments. It returns as many outputs for each
    bit as the method needs, the logits first. The decoder takes all bits. An ordinary module that maps rows of features
    is wrapped in :class:`softspin.nets.CustomNet`.

    In a conditional model, nets also take the encoded condition `(R, 1, batch, C)`: an encoder net after the data, the
    decoder before the bits.

    Args:
        encoder: One net per group.
        decoder: Net from all bits to the outputs of the likelihood.
        prior: Parameters of the prior.
        method: Training method.
        likelihood: Distribution of the data given the outputs of the decoder.
        mean: Mean of the training data, `(features,)`.
        condition: Condition of a model of p(x | c).

    Raises:
        ShapeError: The units do not divide into the groups, or beta is not one number per replica.
    """

    mean: Tensor
    """Mean of the training data, which is subtracted from the encoder's input."""

    def __init__(
        self,
        encoder: Sequence[nn.Module],
        decoder: nn.Module,
        prior: Prior,
        method: Method,
        likelihood: Likelihood,
        mean: Tensor,
        condition: Condition | None = None,
    ) -> None:
        super().__init__()
        self.method = method  # first, because the order of the parameters is that of Adam's state in checkpoints
        self.encoder = nn.ModuleList(as_net(net) for net in encoder)
        self.decoder = as_net(decoder)
        self._features = [Features(self.decoder)]  # in a list, so that its parameters are not counted twice
        self._reconstruction = [Reconstruction(self.decoder, likelihood)]
        self.prior_parameters = prior
        self.likelihood = likelihood
        self.register_buffer("mean", mean)
        self.condition = condition
        self.flips = Flips()
        self.replicas, self.units = prior.bias.shape
        if self.units % len(self.encoder):
            raise ShapeError(f"{self.units} units do not divide into {len(self.encoder)} groups of equal size")
        beta = dict(method.named_buffers()).get("beta")
        if beta is not None and beta.shape != (self.replicas,):
            raise ShapeError(f"beta of shape {tuple(beta.shape)} for {self.replicas} replicas; give one per replica")
        self.bits_per_group = self.units // len(self.encoder)
        """Number of bits in each group."""

    bits = renamed_attribute("bits", "bits_per_group")

    @property
    def nets(self) -> Iterator[Net]:
        """The nets of the encoder, then the decoder."""
        for net in (*self.encoder, self.decoder):
            assert isinstance(net, Net)
            yield net

    def prior(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """The prior p(z).

        Args:
            log_z: log Z `(R,)`, if known.
            validate: Whether to check values; if not, nothing is read on the host.

        Returns:
            The Boltzmann distribution.
        """
        boltzmann: Boltzmann = self.prior_parameters(log_z, validate=validate)
        return boltzmann

    def given(self, condition: Tensor | None) -> DiscreteVAE | Given:
        """The model with the conditions of a batch of images.

        Args:
            condition: Encoded conditions, `(R, batch, C)`; None for an unconditional model.

        Returns:
            An object with the methods of an unconditional model.
        """
        return self if condition is None else Given(self, condition)

    def _condition_input(self, condition: Tensor | None) -> list[Tensor]:
        """The condition as an input of a net: one tensor, or none for an unconditional model."""
        if (condition is None) != (self.condition is None):
            has, give = ("no ", "without") if self.condition is None else ("a ", "with")
            raise ShapeError(f"this model has {has}condition; call it {give} one")
        return [] if condition is None else [condition[:, None]]

    def encode_groups(
        self,
        x: Tensor,
        noise: Tensor,
        draw: Callable[[int, Tensor, Tensor], Tensor],
        condition: Tensor | None = None,
    ) -> None:
        """Run the encoder group by group.

        Args:
            x: Data, `(R, batch, features)`.
            noise: Uniforms, `(R, ..., D)`.
            draw: Called as `draw(group, out, noise)` with the net's output and the noise of this group. It returns the
                bits of the group, `(R, K, batch, bits)`.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Raises:
            ShapeError: A net has a wrong number of outputs.
        """
        inputs = self._encoder_input(x)
        given = self._condition_input(condition)
        seen: list[Tensor] = []
        for group, net in enumerate(self.encoder):
            own = noise[..., group * self.bits_per_group : (group + 1) * self.bits_per_group]
            before = [torch.cat(seen, dim=-1)] if seen else []
            out = net(inputs, *given, *before)
            if out.shape[-1] != self.bits_per_group * self.method.outputs_per_bit:
                raise ShapeError(
                    f"the encoder net of group {group + 1} has {out.shape[-1]} outputs; it needs "
                    f"{self.method.outputs_per_bit} for each of {self.bits_per_group} bits"
                )
            seen.append(draw(group, out, own))

    def _encoder_input(self, x: Tensor) -> Tensor:
        """Input of the encoder nets, `(R, 1, batch, inputs)`."""
        seen = x if self.flips.at is None else torch.where(self.flips.at, 1 - x, x)
        return self.likelihood.encoder_input(seen, self.mean)[:, None]

    def detached_outputs(
        self, x: Tensor, bits: Tensor, group: int, *, own_path: bool = False, condition: Tensor | None = None
    ) -> Tensor:
        """Outputs of the encoder net of a group for given bits, with gradients to the bits alone.

        Args:
            x: Data, `(R, batch, features)`.
            bits: Bits or soft bits of the groups before it, `(R, K, batch, group x bits)`.
            group: Index of the group, from 1: the net of group 0 takes no bits.
            own_path: Whether the statistics of batch norm have no gradient, so that samples are independent.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            Outputs, `(R, K, batch, bits x outputs_per_bit)`.
        """
        inputs = self._encoder_input(x)
        return detached_call(self.encoder[group], inputs, *self._condition_input(condition), bits, own_path=own_path)

    def sample_posterior(self, x: Tensor, noise: Tensor, condition: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Sample bits z ~ q(z|x).

        Args:
            x: Data, `(R, batch, features)`.
            noise: Uniforms, `(R, K, batch, D)`.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            Bits `(R, K, batch, D)` and log q(z|x) `(R, K, batch)`.
        """
        return self._posterior(x, noise, condition, lambda logits, own: (own < torch.sigmoid(logits)).to(logits.dtype))

    def posterior_log_prob(self, x: Tensor, z: Tensor, condition: Tensor | None = None) -> Tensor:
        """log q(z|x) of given bits.

        Args:
            x: Data, `(R, batch, features)`.
            z: Bits, `(R, K, batch, D)`.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            log q(z|x), `(R, K, batch)`.
        """
        return self._posterior(x, z, condition, lambda logits, own: own.to(logits.dtype))[1]

    def _posterior(
        self, x: Tensor, noise: Tensor, condition: Tensor | None, choose: Callable[[Tensor, Tensor], Tensor]
    ) -> tuple[Tensor, Tensor]:
        """Bits by `choose(logits, noise of the group)`, `(R, K, batch, D)`, and their log q(z|x) `(R, K, batch)`."""
        chosen: list[Tensor] = []
        log_q: list[Tensor] = []

        def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
            logits = out[..., : self.bits_per_group]
            z = choose(logits, own[:, 0])
            chosen.append(z)
            log_q.append(logsigmoid(torch.where(z > 0, logits, -logits)).sum(-1))
            return z

        self.encode_groups(x, noise[:, None], draw, condition)
        return torch.cat(chosen, dim=-1), torch.stack(log_q).sum(0)

    def decode(self, bits: Tensor, condition: Tensor | None = None) -> Tensor:
        """Run the decoder.

        Args:
            bits: Bits or soft bits, `(R, K, batch, D)`.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            Parameters of the likelihood, `(R, K, batch, outputs)`.

        Raises:
            ShapeError: The decoder has a wrong number of outputs.
        """
        out: Tensor = self.decoder(*self._condition_input(condition), bits)
        self._check_outputs(out.shape[-1])
        return self.likelihood.parameters_of(out)

    def _check_outputs(self, outputs: int) -> None:
        if outputs != self.likelihood.outputs:
            raise ShapeError(f"the decoder has {outputs} outputs; the likelihood needs {self.likelihood.outputs}")

    def log_likelihood(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z).

        Args:
            x: Data, `(R, batch, features)`.
            parameters: Parameters of the likelihood, `(R, K, batch, outputs)`.

        Returns:
            log p(x|z), `(R, K, batch)`.

        Raises:
            ShapeError: The likelihood returns another shape.
        """
        return self._checked(self.likelihood.log_prob(x, parameters), x, parameters)

    def reconstruction(self, x: Tensor, bits: Tensor, condition: Tensor | None = None) -> Tensor:
        """log p(x|z), the same as `log_likelihood(x, decode(bits))`, but without storing the parameters on a GPU.

        Args:
            x: Data, `(R, batch, features)`.
            bits: Bits or soft bits, `(R, K, batch, D)`.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            log p(x|z), `(R, K, batch)`.

        Raises:
            ShapeError: The decoder has a wrong number of outputs.
        """
        return self.reconstruction_from(x, *self.decoder_features(bits, condition=condition))

    def decoder_features(
        self, bits: Tensor, *, own_path: bool = False, condition: Tensor | None = None
    ) -> tuple[Tensor, Linear | None]:
        """Run the decoder without its last layer, if that is linear.

        Args:
            bits: Bits or soft bits, `(R, K, batch, D)`.
            own_path: Whether there are gradients to the bits alone, with samples independent of each other.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            Inputs of the last layer `(R, K, batch, hidden)` and the layer, or outputs and None.
        """
        parts = [*self._condition_input(condition), bits]
        if own_path:
            return detached_call(self._features[0], *parts, own_path=True), None
        split = self.decoder.split_last(*parts)
        return (self.decoder(*parts), None) if split is None else split

    def reconstruction_from(self, x: Tensor, features: Tensor, layer: Linear | None) -> Tensor:
        """log p(x|z) from the results of :meth:`decoder_features`.

        Args:
            x: Data, `(R, batch, features)`.
            features: Inputs of the last layer, or outputs, `(R, K, batch, ...)`.
            layer: The last layer, or None.

        Returns:
            log p(x|z), `(R, K, batch)`.

        Raises:
            ShapeError: The decoder has a wrong number of outputs, or the likelihood returns another shape.
        """
        self._check_outputs((features if layer is None else layer.weight).shape[-1])
        if layer is None:
            return self.log_likelihood(x, self.likelihood.parameters_of(features))
        return self._checked(self.likelihood.log_prob_of_layer(x, features, layer), x, features)

    def _checked(self, log_prob: Tensor, x: Tensor, inputs: Tensor) -> Tensor:
        """The value of a likelihood, which may be custom; another shape could broadcast silently."""
        expected = (*inputs.shape[:2], max(inputs.shape[2], x.shape[1]))
        if log_prob.shape != expected:
            raise ShapeError(
                f"log_prob of the likelihood '{self.likelihood.name}' has shape {tuple(log_prob.shape)}; it must have "
                f"{expected}, (replicas, samples, batch): sum over the features, and keep the other dimensions"
            )
        return log_prob

    def detached_reconstruction(self, x: Tensor, bits: Tensor, condition: Tensor | None = None) -> Tensor:
        """log p(x|z) with gradients to the bits alone; samples are independent, and running statistics do not change.

        Args:
            x: Data, `(R, batch, features)`.
            bits: Bits or soft bits, `(R, K, batch, D)`.
            condition: Encoded conditions, `(R, batch, C)`, of a conditional model.

        Returns:
            log p(x|z), `(R, K, batch)`.
        """
        inputs = *self._condition_input(condition), bits
        return detached_call(self._reconstruction[0], x, *inputs, own_path=True)

    def decayed(self) -> Iterator[nn.Parameter]:
        """Parameters with weight decay, as chosen by each part of the model.

        Yields:
            The parameters.
        """
        yield from self.method.decayed()
        for net in self.nets:
            yield from net.decayed()
        yield from self.prior_parameters.decayed()
        yield from self.likelihood.decayed()

    def is_replicated(self, name: str) -> bool:
        """Whether a saved tensor has a row for each replica; some tensors are the same for all.

        Args:
            name: Name of the tensor.

        Returns:
            Whether its first dimension is that of the replicas.
        """
        shared = [f"likelihood.{own}" for own in self.likelihood.shared]
        return name not in ("mean", *shared, *(f"condition.{own}" for own in ConditionTable._fields))
