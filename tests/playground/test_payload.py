"""The plain data of a model give the same results in numpy as the model in PyTorch."""

from __future__ import annotations

import base64
import hashlib
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pytest
import torch
from evaluation.models import data_spec, smoothed_method
from playground.models import CASES, GRAPH, REPLICA, given_bits, page, random_model, some_bits
from torch import Tensor, nn

from softspin.api import Model, with_nets
from softspin.config import Config
from softspin.errors import ConfigError, DataError, SupportError
from softspin.playground.export import packed, packed_bits
from softspin.playground.page import render
from softspin.playground.payload import payload, ranked
from softspin.playground.stored import migrated, read_data
from softspin.records import ModelRecord

Array = npt.NDArray[np.float64]


def unpacked(text: str) -> Array:
    """Decode packed numbers as the page does."""
    return np.frombuffer(base64.b64decode(text), "<f4").astype(float)


def replica_data(model: Model, images: Tensor) -> dict[str, Any]:
    """Data of the only replica of a page."""
    (found,) = payload(model, images, replica=REPLICA)["replicas"]
    return dict(found)


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
    data = replica_data(model, x)
    expected = given_bits(model, x, z)
    for group, layers in enumerate(data["encoder"]):
        joined = np.concatenate([x.numpy(), z.numpy()[:, : group * net.bits_per_group]], axis=1).astype(float)
        np.testing.assert_allclose(run_net(layers, joined), expected[:, group].numpy(), atol=1e-5)
    pixels = 1 / (1 + np.exp(-run_net(data["decoder"], z.numpy().astype(float))))
    np.testing.assert_allclose(pixels, model.decode(z, replica=REPLICA).flatten(1).numpy(), atol=1e-6)
    np.testing.assert_allclose(
        unpacked(data["prior"]["bias"]), net.prior_parameters.bias[REPLICA].detach().numpy(), atol=1e-6
    )
    np.testing.assert_allclose(
        unpacked(data["prior"]["weight"]), net.prior_parameters.weight[REPLICA].detach().flatten().numpy(), atol=1e-6
    )


def test_the_smoothing_is_that_of_the_model() -> None:
    model = random_model("dvae#-gauss_int")
    about = replica_data(model, some_bits(1, 12))["smoothing"]
    x, u = some_bits(1, 12).expand(2, 1, -1), torch.full((2, 2, 1, 1, 8), 0.5)
    posterior = smoothed_method(model.net).infer(model.net, x.float(), u).posterior
    width = torch.cat([q.smoothing.beta[REPLICA].flatten() for q in posterior]) ** -0.5
    np.testing.assert_allclose(unpacked(about["width"]), width.detach().numpy(), atol=1e-6)
    about = replica_data(random_model("dvae#-un_exp"), some_bits(1, 12))["smoothing"]
    assert about == {"family": "un_exp", "beta": 16.0, "epsilon": 0.05, "clamp": 0.0}


def test_packed_numbers_are_float32() -> None:
    values = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * 1e3
    assert (unpacked(packed(values.mT)) == values.mT.flatten().float().numpy()).all()
    assert packed(torch.tensor([1.0])) == base64.b64encode(bytes([0, 0, 0x80, 0x3F])).decode()


def test_packed_bits_of_each_image_start_a_new_byte() -> None:
    rows = torch.tensor([[1, 0, 0, 0, 0, 0, 0, 1, 1], [0, 1, 0, 0, 0, 0, 0, 0, 0]], dtype=torch.uint8)
    assert base64.b64decode(packed_bits(rows)) == bytes([0b10000001, 0b10000000, 0b01000000, 0])


@pytest.mark.parametrize(
    ("shape", "drawn"), [((3, 4), (3, 4)), ((12,), (3, 4)), ((2, 2, 3), (6, 2)), ((3, 2, 2), (6, 2))]
)
def test_any_shape_is_drawn_as_rows_and_columns(shape: tuple[int, ...], drawn: tuple[int, int]) -> None:
    data = payload(random_model(shape=shape), some_bits(1, 12))
    assert (data["height"], data["width"]) == drawn


def test_unsupported_models_are_rejected() -> None:
    config = Config(bits_per_group=4, groups=1, width=6)
    own = Model(with_nets(config, data_spec(torch.full((12,), 0.3)), [nn.Linear(12, 4)], None), config, (3, 4))
    with pytest.raises(ConfigError, match=r"net = custom cannot be exported to a web page; only net = mlp \(linear,"):
        page(own, some_bits(1, 12))
    with pytest.raises(SupportError, match="replica 2; this model has 2, counted from 0"):
        page(random_model(), some_bits(1, 12), replica=2)
    broken = random_model()
    with torch.no_grad():
        broken.net.prior_parameters.bias[0, 0] = torch.nan
    with pytest.raises(SupportError, match="a parameter of the model is NaN or infinite"):
        page(broken, some_bits(1, 12), replica=0)
    assert numbers(payload(broken, some_bits(1, 12))) == [1]
    with torch.no_grad():
        broken.net.prior_parameters.bias[1, 0] = torch.inf
    with pytest.raises(SupportError, match="a parameter of the model is NaN or infinite"):
        page(broken, some_bits(1, 12))


# Replicas ----------------------------------------------------------------------------------------------------


def numbers(data: dict[str, Any]) -> list[int]:
    return [one["number"] for one in data["replicas"]]


def with_valid_nll(*values: float | None) -> Model:
    """A model whose metadata have only the validation NLL of each replica."""
    model = random_model()
    model.metadata = cast(ModelRecord, SimpleNamespace(valid_nll=values))
    return model


@pytest.mark.parametrize(
    ("nll", "order"),
    [((90.0, 80.0), [1, 0]), ((80.0, 90.0), [0, 1]), ((None, 95.0), [1, 0]), ((math.nan, 9.0), [1, 0])],
)
def test_replicas_are_ranked_by_validation_nll(nll: tuple[float | None, ...], order: list[int]) -> None:
    assert list(ranked(with_valid_nll(*nll))) == order


def test_a_page_has_the_replicas_that_fit_and_at_least_one() -> None:
    model, image = random_model(), some_bits(1, 12)
    data = payload(model, image)
    assert numbers(data) == [0, 1]
    assert data["trained"] == 2
    first, second = (len(json.dumps(one)) for one in data["replicas"])
    assert numbers(payload(model, image, max_bytes=first + second)) == [0, 1]
    assert numbers(payload(model, image, max_bytes=first + second - 1)) == [0]
    assert numbers(payload(model, image, max_bytes=1)) == [0]
    assert numbers(payload(model, image, replica=1)) == [1]
    assert data["replicas"][1]["name"] == "seed 1, beta 30"


# Graphs ------------------------------------------------------------------------------------------------------


def test_a_graph_has_its_edges_and_blocks_without_couplings() -> None:
    model = random_model(graph=GRAPH)
    prior = replica_data(model, some_bits(1, 12))["prior"]
    edges = np.frombuffer(base64.b64decode(prior["edges"]), "<u2").reshape(-1, 2)
    blocks = np.frombuffer(base64.b64decode(prior["blocks"]), "<u2")
    assert sorted(f"{i}:{j}" for i, j in edges) == sorted(GRAPH.split(","))
    assert all(blocks[i] != blocks[j] for i, j in edges)
    assert set(blocks) == {0, 1, 2}  # it has a triangle
    weight = model.net.prior_parameters.weight[REPLICA].detach()
    given = dict(zip(model.config.edges or (), weight.tolist(), strict=True))
    found = {(int(i), int(j)): value for (i, j), value in zip(edges, unpacked(prior["weight"]), strict=True)}
    assert found == given


# Stored pages ------------------------------------------------------------------------------------------------


def test_an_old_page_gets_the_present_template_and_keeps_its_model() -> None:
    """Version 1: one replica, its data at the top level."""
    data = json.loads(json.dumps(payload(random_model(), some_bits(2, 12), replica=1)))
    (one,) = data["replicas"]
    old = {key: data[key] for key in ("height", "width", "count", "images", "groups", "bits", "unseen")}
    old |= {key: one[key] for key in ("headline", "facts", "encoder", "decoder", "smoothing", "check")}
    old["rbm"] = one["prior"]
    text = render(old)
    found = read_data(text)
    expected = {**one, "number": 0, "name": "seed 1, beta 30; number 1 of 0 to 1"}
    assert found == {
        "version": 2,
        **{key: old[key] for key in old if key in data},
        "replicas": [expected],
    }
    assert render(read_data(text)) == text


def test_pages_that_cannot_be_read_are_rejected() -> None:
    with pytest.raises(DataError, match="no model in this page; expected a page that `softspin playground` wrote"):
        read_data("<p>hello</p>")
    with pytest.raises(DataError, match="no model in this page"):
        read_data('<script type="application/json" id="model">{</script>')
    with pytest.raises(DataError, match="this page has version 3; this softspin reads versions 1 to 2"):
        migrated({"version": 3})
    with pytest.raises(DataError, match="the data of this page have no 'facts'; write the page again"):
        migrated({"height": 3})


DOCS = Path(__file__).parents[2] / "docs/playground.html"
DIGEST = "45dc049443d9da8b3e6789be0f6597b4d25c07b0abf77aeefdbbe15f9eb888b2"


def test_the_page_of_the_documentation_has_the_present_template() -> None:
    """If this fails, run: softspin playground docs/playground.html"""
    text = DOCS.read_text(encoding="utf-8")
    assert render(read_data(text)) == text


def test_the_page_of_the_documentation_has_the_model_of_its_run() -> None:
    """All numbers of the model that was trained by commit f59cfd62737f; the digest was taken when it was exported."""
    (one,) = read_data(DOCS.read_text(encoding="utf-8"))["replicas"]
    parts = {key: one[key] for key in ("encoder", "decoder", "prior", "smoothing", "check")}
    assert hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest() == DIGEST


def test_text_of_a_run_is_escaped() -> None:
    model = random_model()
    evil = "</script><b>&"
    object.__setattr__(model.config, "data", evil)
    text = page(model, some_bits(1, 12))
    assert evil not in text
    assert text.count("</script>") == 2
    assert "<title>softspin: dvae#-power, 2x4 bits, 2x6, &lt;/script&gt;" in text
