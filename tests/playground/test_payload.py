"""The plain data of a model give the same results in numpy as the model in PyTorch."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import torch
from evaluation.models import data_spec, smoothed_method
from playground.models import CASES, REPLICA, given_bits, random_model, some_bits
from torch import nn

from softspin.api import Model, with_nets
from softspin.config import Config
from softspin.errors import ConfigError, SupportError
from softspin.playground.export import packed, packed_bits
from softspin.playground.page import page, payload
from softspin.priors import GraphPrior

Array = npt.NDArray[np.float64]


def unpacked(text: str) -> Array:
    """Decode packed numbers as the page does."""
    return np.frombuffer(base64.b64decode(text), "<f4").astype(float)


def run_net(layers: list[dict[str, Any]], x: Array) -> Array:
    for index, layer in enumerate(layers):
        weight = unpacked(layer["weight"]).reshape(layer["inputs"], layer["outputs"])
        x = (np.tanh(x) if index else x) @ weight + unpacked(layer["bias"])
    return x


@pytest.mark.parametrize(("method", "structure"), CASES)
def test_plain_layers_equal_the_model(method: str, structure: str) -> None:
    model = random_model(method, structure)
    net = model.net
    x, z = some_bits(7, 12), some_bits(7, net.units, seed=1)
    data = payload(model, x, REPLICA)
    expected = given_bits(model, x, z)
    for group, layers in enumerate(data["encoder"]):
        joined = np.concatenate([x.numpy(), z.numpy()[:, : group * net.bits_per_group]], axis=1).astype(float)
        np.testing.assert_allclose(run_net(layers, joined), expected[:, group].numpy(), atol=1e-5)
    pixels = 1 / (1 + np.exp(-run_net(data["decoder"], z.numpy().astype(float))))
    np.testing.assert_allclose(pixels, model.decode(z, replica=REPLICA).flatten(1).numpy(), atol=1e-6)
    np.testing.assert_allclose(
        unpacked(data["rbm"]["bias"]), net.prior_parameters.bias[REPLICA].detach().numpy(), atol=1e-6
    )
    np.testing.assert_allclose(
        unpacked(data["rbm"]["weight"]), net.prior_parameters.weight[REPLICA].detach().flatten().numpy(), atol=1e-6
    )


def test_the_smoothing_is_that_of_the_model() -> None:
    model = random_model("dvae#-gauss_int")
    about = payload(model, some_bits(1, 12), REPLICA)["smoothing"]
    x, u = some_bits(1, 12).expand(2, 1, -1), torch.full((2, 2, 1, 1, 8), 0.5)
    posterior = smoothed_method(model.net).infer(model.net, x.float(), u).posterior
    width = torch.cat([q.smoothing.beta[REPLICA].flatten() for q in posterior]) ** -0.5
    np.testing.assert_allclose(unpacked(about["width"]), width.detach().numpy(), atol=1e-6)
    about = payload(random_model("dvae#-un_exp"), some_bits(1, 12), REPLICA)["smoothing"]
    assert about == {"family": "un_exp", "beta": 16.0, "epsilon": 0.05, "clamp": 0.0}


def test_packed_numbers_are_float32() -> None:
    values = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e3
    assert (unpacked(packed(values.mT)) == values.mT.flatten().float().numpy()).all()
    assert packed(torch.tensor([1.0])) == base64.b64encode(bytes([0, 0, 0x80, 0x3F])).decode()


def test_packed_bits_of_each_image_start_a_new_byte() -> None:
    rows = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.uint8)
    assert base64.b64decode(packed_bits(rows)) == bytes([0b10000001, 0b10000000, 0b01000000, 0])


@pytest.mark.parametrize(("shape", "drawn"), [((3, 4), (3, 4)), ((12,), (1, 12)), ((2, 2, 3), (4, 3))])
def test_any_shape_is_drawn_as_rows_and_columns(shape: tuple[int, ...], drawn: tuple[int, int]) -> None:
    data = payload(random_model(shape=shape), some_bits(1, 12))
    assert (data["height"], data["width"]) == drawn


def test_unsupported_models_are_rejected() -> None:
    config = Config(bits_per_group=4, groups=1, width=6)
    own = Model(with_nets(config, data_spec(torch.full((12,), 0.3)), [nn.Linear(12, 4)], None), config, (3, 4))
    with pytest.raises(ConfigError, match=r"net = custom cannot be exported to a web page; only net = mlp \(linear,"):
        page(own, some_bits(1, 12))
    graph = random_model()
    graph.net.prior_parameters = GraphPrior([(0, 1), (1, 2), (0, 2)], units=8, replicas=2)
    with pytest.raises(SupportError, match="this model's prior is on a graph; the page supports only bipartite priors"):
        page(graph, some_bits(1, 12))
    with pytest.raises(SupportError, match="replica 2; this model has 2, counted from 0"):
        page(random_model(), some_bits(1, 12), replica=2)
    broken = random_model()
    with torch.no_grad():
        broken.net.prior_parameters.bias[0, 0] = torch.nan
    with pytest.raises(SupportError, match="a parameter of the model is NaN or infinite"):
        page(broken, some_bits(1, 12))
    page(broken, some_bits(1, 12), replica=1)


def test_text_of_a_run_is_escaped() -> None:
    model = random_model()
    evil = "</script><b>&"
    object.__setattr__(model.config, "data", evil)
    text = page(model, some_bits(1, 12))
    assert evil not in text
    assert text.count("</script>") == 2
    assert "<title>softspin: dvae#-power, 2-nonlinear, &lt;/script&gt;" in text
