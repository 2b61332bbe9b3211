"""The importance-sampled likelihood against enumeration and its formulas, and its consistency."""

from __future__ import annotations

import contextlib
import math
import weakref
from typing import Any

import pytest
import torch
from evaluation.models import PIXELS, custom_model, exact_log_z, small_model, some_images
from gpu import with_torch_warnings
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils._python_dispatch import TorchDispatchMode

from softspin.distributions import BipartiteBoltzmann
from softspin.errors import ShapeError, SupportError
from softspin.evaluation import Likelihood, evaluate, exact_log_likelihood, likelihood
from softspin.evaluation.draws import replica_keys, uniforms
from softspin.evaluation.running import Running, evaluating
from softspin.model import DiscreteVAE
from softspin.paper import METHODS

LIMIT = 6.2
"""Student's t with 99 degrees of freedom is beyond it with probability 1.3e-8: 4e-7 in 32 values together."""


def student_t(model: DiscreteVAE, samples: int = 5000) -> Tensor:
    """Distance of estimate / exact p(x) from 1 in standard errors, averaged over 100 images, `(R,)`.

    The estimate of p(x) is unbiased, that of log p(x) is not, so this comparison has no bias.
    """
    images = some_images(100)
    estimate = evaluate(model, images, samples=samples, log_z=exact_log_z(model), per_image=True).log_likelihood
    assert estimate is not None
    ratio = torch.exp(estimate - exact_log_likelihood(model, images))
    error = ratio.std(1) / math.sqrt(len(images))
    return (ratio.mean(1) - 1) / error


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("name", METHODS)
def test_agrees_with_enumeration(name: str, groups: int) -> None:
    t = student_t(small_model(name, groups))
    assert t.abs().max() < LIMIT, t


@pytest.mark.parametrize("wrong", ["log q", "bits", "prior"])
def test_small_errors_are_detected(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = small_model()
    sample_posterior, energy = model.sample_posterior, BipartiteBoltzmann.energy

    def wrong_posterior(x: Tensor, u: Tensor) -> tuple[Tensor, Tensor]:
        z, log_q = sample_posterior(x, 0.8 * u if wrong == "bits" else u)
        return z, log_q + 0.05 if wrong == "log q" else log_q

    def wrong_energy(self: BipartiteBoltzmann, z: Tensor) -> Tensor:
        # Only the evaluation has four dimensions; the enumeration has three.
        return energy(self, z) - 0.1 * z[..., 0] * (wrong == "prior" and z.ndim == 4)

    monkeypatch.setattr(model, "sample_posterior", wrong_posterior)
    monkeypatch.setattr(BipartiteBoltzmann, "energy", wrong_energy)
    assert student_t(model).abs().max() > LIMIT


def test_all_numbers_match_their_formulas() -> None:
    model, images, count = small_model(seeds=(3, 4, 5)), some_images(7), 50
    log_z = exact_log_z(model)
    log_z = log_z._replace(lower=log_z.value - 0.5, upper=log_z.value + torch.tensor([0.25, 1.0, 2.0]))
    got = evaluate(model, images, samples=count, log_z=log_z, seed=11, per_image=True)

    x = images.double().expand(3, 7, PIXELS)
    u = uniforms(replica_keys(11, 3), torch.arange(7), torch.arange(count), model.units)
    with evaluating(model):
        z, log_q = model.sample_posterior(x, u)
        log_likelihood = model.log_likelihood(x, model.decode(z))
        log_p = model.prior(log_z.value).log_prob(z)
    w = torch.exp(log_likelihood + log_p - log_q)
    each = w.mean(1).log()
    ess = w.sum(1).square() / w.square().sum(1)
    expected = {
        "nll": -each.mean(1),
        "standard_error": each.std(1) / math.sqrt(7),
        "lower": -each.mean(1) - log_z.value + log_z.lower,
        "upper": -each.mean(1) - log_z.value + log_z.upper,
        "elbo": w.log().mean((1, 2)),
        "kl": (log_q - log_p).mean((1, 2)),
        "reconstruction": log_likelihood.mean((1, 2)),
        "effective_sample_size": ess.mean(1),
        "smallest_effective_sample_size": ess.amin(1),
        "log_likelihood": each,
    }
    for name, value in expected.items():
        torch.testing.assert_close(getattr(got, name), value, rtol=1e-10, atol=1e-10, msg=name)
        assert getattr(got, name).dtype == torch.float64
    assert (got.images, got.samples, got.log_z) == (7, count, log_z)
    assert evaluate(model, images, samples=2, log_z=log_z).log_likelihood is None


def same(a: Likelihood, b: Likelihood, replicas: slice = slice(None)) -> None:
    for name, value in a._asdict().items():
        if isinstance(value, Tensor):
            torch.testing.assert_close(
                value[replicas], getattr(b, name), rtol=1e-11, atol=1e-11, equal_nan=True, msg=name
            )


@with_torch_warnings
def test_one_graph_is_compiled_for_all_full_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """10 images in batches of 4 and 40 samples in chunks of 15: the last batch and the last chunks are not compiled.

    Traced on the CPU; on a GPU, `test_warm_start.py` compiles it.
    """
    graphs = CompileCounter()
    torch.compiler.reset()
    compiled = torch.compile(likelihood._add, dynamic=False, backend=graphs, fullgraph=True)
    monkeypatch.setattr(likelihood, "_compiled_add", lambda: compiled)
    model, images = small_model(), some_images(10)
    options: dict[str, Any] = {"samples": 40, "log_z": exact_log_z(model), "image_batch": 4, "sample_chunk": 15}
    same(evaluate(model, images, **options, compiled=True), evaluate(model, images, **options))
    same(evaluate(model, images, **options, compiled=True), evaluate(model, images, **options))
    assert graphs.frame_count == 1


@pytest.mark.parametrize(("image_batch", "sample_chunk"), [(1, 1), (4, 7), (10, 1000), (None, 3), (3, None)])
def test_batches_and_chunks_change_nothing(image_batch: int | None, sample_chunk: int | None) -> None:
    model, images = small_model(), some_images(10)
    log_z = exact_log_z(model)
    usual = evaluate(model, images, samples=40, log_z=log_z, per_image=True, diagnose=True)
    assert bool(usual.pareto_k.isfinite().all())
    sizes: dict[str, Any] = {"image_batch": image_batch, "sample_chunk": sample_chunk, "diagnose": True}
    same(usual, evaluate(model, images, samples=40, log_z=log_z, per_image=True, **sizes))


def test_a_replica_is_the_same_alone_and_among_others() -> None:
    images = some_images(6)
    together, alone = small_model(seeds=(7, 8, 9)), small_model(seeds=(8,))
    for seed in (5, [5, 6, 7]):
        many = evaluate(together, images, samples=30, log_z=exact_log_z(together), seed=seed)
        own = seed if isinstance(seed, int) else seed[1]
        same(many, evaluate(alone, images, samples=30, log_z=exact_log_z(alone), seed=own), slice(1, 2))
        other = evaluate(alone, images, samples=30, log_z=exact_log_z(alone), seed=own + 1)
        assert abs(other.nll.item() - many.nll[1].item()) > 1e-6


def test_a_nan_stays_in_its_replica() -> None:
    model, images = small_model(), some_images(5)
    log_z = exact_log_z(model)
    before = evaluate(model, images, samples=20, log_z=log_z)
    with torch.no_grad():
        model.prior_parameters.bias[0] = torch.nan
    after = evaluate(model, images, samples=20, log_z=log_z)
    assert after.nll[0].isnan()
    assert after.nll[1] == before.nll[1]


def test_more_samples_tighten_the_bound() -> None:
    model, images = small_model(), some_images(200)
    log_z, truth = exact_log_z(model), -exact_log_likelihood(model, images).mean(1)
    results = [evaluate(model, images, samples=samples, log_z=log_z) for samples in (1, 5, 50, 2000)]
    torch.testing.assert_close(results[0].nll, -results[0].elbo)
    gaps = torch.stack([result.nll - truth for result in results])
    assert (gaps.diff(dim=0) < 0).all()
    assert (gaps[-1].abs() < 0.01 * gaps[0]).all()
    torch.testing.assert_close(results[-1].elbo, results[-1].reconstruction - results[-1].kl)


def test_an_infinite_limit_of_log_z_gives_an_infinite_limit_of_the_nll() -> None:
    model = small_model()
    log_z = exact_log_z(model)._replace(upper=torch.full((2,), torch.inf, dtype=torch.float64))
    result = evaluate(model, some_images(3), samples=2, log_z=log_z)
    assert result.upper.isinf().all()
    torch.testing.assert_close(result.lower, result.nll)


class LinearModel(nn.Module):
    """Bit 0 copies pixel 0, bit 1 is a fair coin, bit 2 is nearly always on, bit 3 depends on pixel 1 by 3 in 100."""

    def forward(self, x: Tensor) -> Tensor:
        # The centre of a pixel is 1/2.
        middle = torch.zeros_like(x[:, 0])
        return torch.stack([40 * x[:, 0], middle, middle + 9, 0.06 * x[:, 1]], dim=1)


@pytest.mark.parametrize("samples", [2, 100])
def test_active_bits_depend_on_the_image(samples: int) -> None:
    model = custom_model([LinearModel()], nn.Linear(4, PIXELS), 4, torch.full((PIXELS,), 0.5))
    images = some_images(4000)
    # With two samples the mean of a fair coin has a variance of 1/8 over images, which is sampling noise.
    assert evaluate(model, images, samples=samples, log_z=exact_log_z(model)).active_bits.tolist() == [1.0]


def test_statistics_of_one_image_or_one_sample_are_nan() -> None:
    model = small_model()
    one = evaluate(model, some_images(1), samples=5, log_z=exact_log_z(model))
    assert one.standard_error.isnan().all()
    assert one.active_bits.isnan().all()
    assert one.nll.isfinite().all()
    assert evaluate(model, some_images(5), samples=1, log_z=exact_log_z(model)).active_bits.isnan().all()


class LiveBytes(TorchDispatchMode):
    """Peak number of bytes in results of operations."""

    def __init__(self, excluded: Tensor) -> None:
        super().__init__()
        self.live: list[weakref.ref[Tensor]] = []
        self.excluded, self.peak = excluded.untyped_storage().data_ptr(), 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.live = [*(one for one in self.live if one() is not None), weakref.ref(out)]
            storages = [tensor.untyped_storage() for one in self.live if (tensor := one()) is not None]
            sizes = {storage.data_ptr(): storage.nbytes() for storage in storages}
            self.peak = max(self.peak, sum(size for where, size in sizes.items() if where != self.excluded))
        return out


def peak(model: DiscreteVAE, images: int, samples: int, per_image: bool = False) -> int:
    x = some_images(images).to(model.mean)
    log_z = exact_log_z(model)
    with LiveBytes(x) as mode:
        evaluate(model, x, samples=samples, log_z=log_z, image_batch=4, sample_chunk=8, per_image=per_image)
    return mode.peak


def test_memory_grows_neither_with_images_nor_with_samples() -> None:
    model = small_model()
    few = peak(model, 8, 16)
    assert few > 4 * 8 * 2 * PIXELS * 8, "the count must include the decoder's output"
    assert peak(model, 80, 16) <= few + 64
    assert peak(model, 8, 400) <= few + 64
    assert peak(model, 80, 16, per_image=True) >= few + 72 * 2 * 8


def test_progress_counts_images() -> None:
    model, counts = small_model(), list[int]()
    evaluate(model, some_images(10), samples=2, log_z=exact_log_z(model), image_batch=4, progress=counts.append)
    assert counts == [4, 8, 10]


def test_evaluation_restores_the_state_of_the_model() -> None:
    model = small_model().train()
    model.decoder.eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    modes = [module.training for module in model.modules()]
    products, convolutions = torch.backends.cuda.matmul, torch.backends.cudnn.conv  # type: ignore[attr-defined]
    assert convolutions.fp32_precision == "tf32", "the default of torch"
    old = products.fp32_precision
    products.fp32_precision = "tf32"
    try:
        evaluate(model, some_images(3), samples=2, log_z=exact_log_z(model))
        with contextlib.suppress(KeyError), evaluating(model):
            assert not model.training
            assert not torch.is_grad_enabled()
            assert products.fp32_precision == "ieee"
            assert convolutions.fp32_precision == "ieee"
            raise KeyError
        assert products.fp32_precision == "tf32"
        assert convolutions.fp32_precision == "tf32"
    finally:
        products.fp32_precision = old
    assert torch.is_grad_enabled()
    assert modes == [module.training for module in model.modules()]
    for name, value in model.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_wrong_input_raises_a_clear_error() -> None:
    model = small_model()
    log_z, images = exact_log_z(model), some_images(3)
    with pytest.raises(ShapeError, match=r"images of shape \(3, 8\); this model takes \(at least 1, 9\)"):
        evaluate(model, images[:, :8], log_z=log_z)
    with pytest.raises(ShapeError, match=r"images of shape \(0, 9\)"):
        evaluate(model, images[:0], log_z=log_z)
    with pytest.raises(SupportError, match="values other than 0 and 1"):
        evaluate(model, images / 2, log_z=log_z, samples=1)
    with pytest.raises(ShapeError, match=r"log_z of shape \(\) for 2 replicas; give one per replica"):
        evaluate(model, images, log_z=log_z._replace(value=torch.tensor(1.0)))
    with pytest.raises(ShapeError, match="3 seeds for 2 replicas; give one for all, or one per replica"):
        evaluate(model, images, log_z=log_z, seed=[1, 2, 3])
    with pytest.raises(SupportError, match="0 samples; at least 1 is needed"):
        evaluate(model, images, log_z=log_z, samples=0)
    with pytest.raises(SupportError, match="16777217 samples; evaluation takes at most 16777216"):
        evaluate(model, images, log_z=log_z, samples=(1 << 24) + 1)
    with pytest.raises(SupportError, match="0 images at a time"):
        evaluate(model, images, log_z=log_z, image_batch=0)
    with pytest.raises(SupportError, match="0 samples at a time"):
        evaluate(model, images, log_z=log_z, sample_chunk=0)


def test_running_mean_and_variance() -> None:
    values = 1e8 + torch.rand(3, 50, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    seen = Running()
    for part in values.split([1, 7, 30, 12], dim=1):
        seen.add(part)
    torch.testing.assert_close(seen.mean, values.mean(1))
    torch.testing.assert_close(seen.variance, values.var(1), rtol=1e-6, atol=0)
    torch.testing.assert_close(seen.standard_error, values.std(1) / math.sqrt(50), rtol=1e-6, atol=0)
