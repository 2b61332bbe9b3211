"""The discrete variational autoencoder: encoder nets, decoder, likelihood, prior and method, and nothing else.

x -> outputs of the net of group 1 -> its bits -> net of group 2, ... ; all bits -> decoder -> likelihood of x. Shapes:
data `(R, batch, features)`; everything that depends on a sample `(R, K, batch, ...)`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from softspin.config import Config
from softspin.data.dataset import DataSpec
from softspin.deprecation import renamed_attribute
from softspin.distributions import Boltzmann
from softspin.errors import ShapeError, SupportError
from softspin.likelihoods import Likelihood
from softspin.methods import Method
from softspin.nets import Net, NetSpec, as_net
from softspin.parts import LIKELIHOODS, METHODS, NETS, PRIORS
from softspin.priors import Prior


class DiscreteVAE(nn.Module):
    """R models of one shape, side by side.

    `encoder` has one net per group: the net of group g takes the centred data `(R, 1, batch, features)` and the bits of
    the groups before it `(R, K, batch, (g - 1) bits)`, as separate arguments, and gives as many outputs for each bit as
    the method needs, the logits first. The decoder takes all bits. An ordinary module that maps rows of features is
    wrapped in :class:`softspin.nets.CustomNet`.
    """

    mean: Tensor
    """Of the training data, which the encoder's input is centred by."""

    def __init__(
        self,
        encoder: Sequence[nn.Module],
        decoder: nn.Module,
        prior: Prior,
        method: Method,
        likelihood: Likelihood,
        mean: Tensor,
    ) -> None:
        super().__init__()
        self.method = method  # first: the order of the parameters is that of Adam's table in checkpoints
        self.encoder = nn.ModuleList(as_net(net) for net in encoder)
        self.decoder = as_net(decoder)
        self.prior_parameters = prior
        self.likelihood = likelihood
        self.register_buffer("mean", mean)
        self.replicas, self.units = prior.bias.shape
        if self.units % len(self.encoder):
            raise ShapeError(f"{self.units} units do not divide into {len(self.encoder)} groups of equal size")
        beta = dict(method.named_buffers()).get("beta")
        if beta is not None and beta.shape != (self.replicas,):
            raise ShapeError(f"beta of shape {tuple(beta.shape)} for {self.replicas} replicas; there is one each")
        self.bits_per_group = self.units // len(self.encoder)
        """In each group."""

    bits = renamed_attribute("bits", "bits_per_group")

    @property
    def nets(self) -> Iterator[Net]:
        """The encoder's nets, then the decoder."""
        for net in (*self.encoder, self.decoder):
            assert isinstance(net, Net)
            yield net

    def prior(self, log_z: Tensor | None = None, *, validate: bool = True) -> Boltzmann:
        """p(z)."""
        boltzmann: Boltzmann = self.prior_parameters(log_z, validate=validate)
        return boltzmann

    def encode_groups(self, x: Tensor, noise: Tensor, draw: Callable[[int, Tensor, Tensor], Tensor]) -> None:
        """Group after group: the net's output and this group's noise go to `draw`, which returns the group's bits.

        x `(R, batch, features)`; noise `(R, ..., D)`; `draw(group, out, noise)` gives `(R, K, batch, bits)`.
        """
        centred = (x - self.mean)[:, None]
        seen: list[Tensor] = []
        for group, net in enumerate(self.encoder):
            own = noise[..., group * self.bits_per_group : (group + 1) * self.bits_per_group]
            before = [torch.cat(seen, dim=-1)] if seen else []
            out = net(centred, *before)
            if out.shape[-1] != self.bits_per_group * self.method.outputs_per_bit:
                raise ShapeError(
                    f"the encoder net of group {group + 1} gives {out.shape[-1]} outputs; {self.bits_per_group} bits "
                    f"with {self.method.outputs_per_bit} each are needed"
                )
            seen.append(draw(group, out, own))

    def sample_posterior(self, x: Tensor, noise: Tensor) -> tuple[Tensor, Tensor]:
        """Bits z ~ q(z|x) `(R, K, batch, D)` and log q(z|x) `(R, K, batch)`, from uniforms `(R, K, batch, D)`."""
        drawn: list[Tensor] = []
        log_q: list[Tensor] = []

        def draw(group: int, out: Tensor, own: Tensor) -> Tensor:
            logits = out[..., : self.bits_per_group]
            z = (own[:, 0] < torch.sigmoid(logits)).to(logits.dtype)
            drawn.append(z)
            log_q.append(logsigmoid(torch.where(z > 0, logits, -logits)).sum(-1))
            return z

        self.encode_groups(x, noise[:, None], draw)
        return torch.cat(drawn, dim=-1), torch.stack(log_q).sum(0)

    def decode(self, bits: Tensor) -> Tensor:
        """Parameters of the likelihood `(R, K, batch, outputs)` from bits, hard or soft, `(R, K, batch, D)`."""
        out: Tensor = self.decoder(bits)
        if out.shape[-1] != self.likelihood.outputs:
            raise ShapeError(
                f"the decoder gives {out.shape[-1]} outputs; the likelihood needs {self.likelihood.outputs}"
            )
        return self.likelihood.parameters_of(out)

    def log_likelihood(self, x: Tensor, parameters: Tensor) -> Tensor:
        """log p(x|z) `(R, K, batch)` of data `(R, batch, features)`."""
        return self.likelihood.log_prob(x, parameters)

    def decayed(self) -> Iterator[nn.Parameter]:
        """Parameters with weight decay: each part says which of its own."""
        yield from self.method.decayed()
        for net in self.nets:
            yield from net.decayed()
        yield from self.prior_parameters.decayed()
        yield from self.likelihood.decayed()

    def is_replicated(self, name: str) -> bool:
        """Whether the saved tensor of that name has a row for each replica; some are the same for all."""
        return name not in ("mean", *(f"likelihood.{own}" for own in self.likelihood.shared))


def build(config: Config, data: DataSpec) -> DiscreteVAE:
    """The model that a config describes for data of that shape. Each replica's parameters come from its seed alone."""
    shape = config.shape
    generators = [torch.Generator().manual_seed(replica.seed) for replica in config.replicas]
    likelihood: Likelihood = LIKELIHOODS.get(config.likelihood)(config, data)
    method: type[Method] = METHODS.get(config.method)
    net: type[Net] = NETS.get(config.net)
    outputs = shape.bits_per_group * method.outputs_per_bit
    encoder = []
    for group in range(shape.groups):
        inputs = (data.features, *([group * shape.bits_per_group] if group else []))
        encoder.append(net.build(config, NetSpec("encoder", group, inputs, outputs, data), generators))
    decoder = net.build(config, NetSpec("decoder", 0, (shape.units,), likelihood.outputs, data), generators)
    prior: Prior = PRIORS.get(config.prior or "rbm").build(config)
    return DiscreteVAE(encoder, decoder, prior, method(config, generators), likelihood, data.mean)


def restore(config: Config, tensors: Mapping[str, Tensor], shape: tuple[int, ...] | None = None) -> DiscreteVAE:
    """The model of a config with these tensors as its own: all of its parameters and statistics, by name.

    `shape` is that of an image; without it the data are taken for one row of features. Config and tensors may be
    untrusted, so no size in the config is believed before the tensors confirm it: the model is first built without
    memory, and no loop is longer than there are tensors. Raises ShapeError where names or
    shapes are not those of the model, SupportError where numbers are of another type or not finite, a variance is
    below 0, or beta is another.
    """
    groups, fewest = config.shape.groups, NETS.get(config.net).fewest_tensors(config)
    if (groups + 1) * fewest > len(tensors):
        raise ShapeError(f"{groups + 1} nets of {fewest} tensors each need more than {len(tensors)} tensors")
    mean = tensors.get("mean", torch.empty(0))
    if mean.ndim != 1 or not len(mean):
        raise ShapeError("tensor 'mean', with one number for each pixel, is missing or has another shape")
    try:
        with torch.device("meta"):
            model = build(config, DataSpec(shape or (len(mean),), mean.detach().cpu()))
    except RuntimeError as error:  # such as sizes whose product is beyond 64 bits
        what = str(error).strip().splitlines()[0]
        raise ShapeError(
            f"a model of {groups} groups of {config.shape.bits_per_group} bits cannot be built: {what}"
        ) from None
    wanted = model.state_dict()
    for name in sorted(wanted.keys() | tensors.keys()):
        if name not in wanted:
            raise ShapeError(f"tensor '{name}' is none of the model's")
        if name not in tensors:
            raise ShapeError(f"tensor '{name}' is missing")
        _check_tensor(name, tensors[name], wanted[name])
    betas = [replica.beta for replica in config.replicas]
    stored = tensors.get("method.beta")
    if stored is not None and not torch.equal(stored.cpu(), torch.tensor(betas)):
        raise SupportError(f"tensor 'method.beta' is {stored.tolist()}; the config's is {betas}")
    model.load_state_dict({name: value.clone() for name, value in tensors.items()}, assign=True)
    for name, buffer in model.named_buffers():
        if buffer.is_meta:
            raise ShapeError(f"buffer '{name}' is not saved; make it persistent, or make it on the CPU by device='cpu'")
    return model


def _check_tensor(name: str, came: Tensor, wanted: Tensor) -> None:
    """Raise unless a stored tensor can take the place of the model's own."""
    if came.shape != wanted.shape:
        raise ShapeError(f"tensor '{name}' has shape {tuple(came.shape)}; the config's has {tuple(wanted.shape)}")
    if came.dtype != wanted.dtype or not bool(came.isfinite().all()):
        what = str(came.dtype)[6:] if came.dtype != wanted.dtype else "not finite"
        raise SupportError(f"tensor '{name}' is {what}; it must be finite {str(wanted.dtype)[6:]}")
    if name.endswith(".variance") and bool((came < 0).any()):
        raise SupportError(f"tensor '{name}' has numbers below 0; a variance has none")
