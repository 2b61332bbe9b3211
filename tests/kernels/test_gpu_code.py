"""Compile the GPU kernels for other GPUs, without a GPU, and check their shared memory and registers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton is not installed")

SHARED_MEMORY = {80: 166912, 89: 101376, 90: 232448}
"""Maximum shared memory of a program in bytes: A100, RTX 40, H100 and H200."""

REGISTERS = {"draw": 64, "draw_backward": 96}
"""Maximum registers of a thread of the soft bits' kernels, so that at least 20 warps share a multiprocessor."""
SPILLED = 16
"""Maximum bytes of a thread on the stack, for values that have no register."""

COMPILE = """
import json, re, subprocess, sys, tempfile
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia.compiler import CUDABackend
from triton.runtime import driver
from triton.runtime.jit import JITFunction

class Absent:
    def get_current_target(self):
        return GPUTarget("cuda", int(sys.argv[1]), 32)
    def get_current_device(self):
        return 0
    def get_current_stream(self, device):
        return 0

def compile_only(self, *args, grid, warmup, **options):
    made = run(self, *args, grid=grid, warmup=True, **options)
    module = self.__module__.rpartition(".")[2]
    used = resources(made.asm["cubin"]) if assemble and module in ("gpu_draw", "gpu_gaussian") else None
    print(json.dumps([module, self.__name__, case, used, made.metadata.shared]))

def resources(code):
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code)
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return [int(re.search(name + r":(\\d+)", text)[1]) for name in ("REG", "STACK")]

assemble = sys.argv[3] == "assemble=yes"
if not assemble:
    CUDABackend.make_cubin = lambda self, *given: b""
driver.set_active(Absent())
run, JITFunction.run = JITFunction.run, compile_only

from softspin.kernels import gpu, gpu_adam, gpu_bernoulli, gpu_convolution, gpu_draw, gpu_gaussian, gpu_halves
from softspin.kernels import gpu_log_det
from softspin.kernels import gpu_matmul, gpu_mean_field, gpu_noise, gpu_norm, gpu_positions, init_rng_state
from softspin.kernels.halves import halves

for n, replicas in json.loads(sys.argv[2]):
    case, rng_state = n, init_rng_state(0, replicas)
    z, bias, weight = torch.zeros(replicas, 1000, 2 * n), torch.zeros(replicas, 2 * n), torch.zeros(replicas, n, n)
    gpu.gibbs_sweeps(z, bias, weight, rng_state, 40)
    if replicas == 1:
        few = n if assemble else 32  # the kernel is the one above, which needs as much memory
        part, temperatures = bias[:, : 2 * few], torch.linspace(0, 1, 5)
        gpu.anneal(part, weight[:, :few, :few], part, temperatures, 1000, rng_state)
        gpu_mean_field.launch(z, bias, weight, 5, False)
        if assemble:  # smaller blocks, which need about as much memory
            gpu_mean_field.launch(z[:, :100], bias, weight, 5, False)
case = 0
x, w, g = torch.zeros(2, 100, 200), torch.zeros(2, 200, 784), torch.zeros(2, 100, 784)
gpu_matmul.launch(x, w, gpu_matmul.tile_for(100, 784, 200), False)
gpu_matmul.launch_two(g, w.mT, x.mT, g, False)
h, v, s = halves(x), halves(w), halves(torch.zeros(2, 100, 208))
for differentiable in (True, False):
    gpu_bernoulli.launch_forward(h, v, torch.zeros(2, 784), g, False, differentiable)
gpu_halves.launch_layer(h, v, g, False)
gpu_halves.launch_gradients(halves(g), v, s, torch.zeros(2, 100), False)
row = torch.zeros(2, 200)
gpu_norm.launch_sums(x, x, row, row, row, row)
gpu_norm.launch_gradient(x, x, row, row, row, row, torch.zeros(3, 2, 200))
gpu_noise.launch(init_rng_state(0, 2), torch.zeros(2, 1000), 1)
p = torch.zeros(2, 1000)
gpu_adam.launch(p, p, p, p, p[0], p[0, :2], p[:, :1], 0.9, 0.999, 1e-3)
u, beta = torch.zeros(2, 2, 5, 100, 400)[..., :200], torch.ones(2)
for family in range(3):
    case = family
    zeta, odds, nears, ratio = gpu_draw.launch(u[:, 0, :1], u[:, 0], u[:, 1], beta, 0.05, family)
    gpu_draw.launch_backward(u[:, 0, :1], nears, beta, zeta, odds, ratio, 0.05, family)
for shift, width in ((u[:, 1, :1], torch.ones(2, 1, 1, 200)), (None, beta[:, None, None, None])):
    case = 0 if shift is None else 1
    zeta, ratio, base = gpu_gaussian.launch(u[:, 0, :1], u[:, 0], u[:, 1], width, shift)
    gpu_gaussian.launch_backward(u[:, 0, :1], zeta, width, shift, zeta, ratio, base, shift is not None)
gpu_log_det.launch(torch.zeros(2, 100, 100))
large, small, points = halves(torch.zeros(2, 3, 5, 6, 64)), halves(torch.zeros(2, 3, 3, 3, 64)), (5, 5)
weights = halves(torch.zeros(2, 25, 64, 64))
gpu_convolution.launch_convolve(large, weights, torch.zeros(small[0].shape), points, False)
gpu_convolution.launch_transpose(small, weights, torch.zeros(large[0].shape), points, False)
gpu_convolution.launch_weight_gradient(large, small, torch.zeros(1, 2, 25, 64, 64), points, False)
where = torch.zeros(3, dtype=torch.int64)
gpu_positions.launch(where, where, where, 7)
"""


@pytest.mark.parametrize(
    ("capability", "boltzmanns", "assemble"),
    [
        (90, [(200, 1), (200, 5)], "no"),
        pytest.param(90, [(200, 1), (200, 5)], "yes", marks=pytest.mark.slow),
        pytest.param(80, [(192, 1)], "yes", marks=pytest.mark.slow),
        pytest.param(89, [(128, 1), (100, 20)], "yes", marks=pytest.mark.slow),
    ],
)
def test_kernels_compile_and_fit(
    capability: int, boltzmanns: list[tuple[int, int]], assemble: str, tmp_path: Path
) -> None:
    """Compile the sizes that `gpu` supports, (units per side, replicas), with the kernel that would run.

    The shared memory is known before NVIDIA's assembler, which takes a third of the time.
    """
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", COMPILE, str(capability), json.dumps(boltzmanns), f"assemble={assemble}"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr[-2000:]
    rows = [json.loads(line) for line in run.stdout.splitlines()]
    for _, name, _, used, _ in rows:
        assert used is None or (used[0] <= REGISTERS.get(name, 64) and used[1] <= SPILLED), rows
    needs = [[*kernel, shared] for *kernel, _, shared in rows]
    assert {(module, name) for module, name, *_ in needs} >= {
        ("gpu_matmul", "product"), ("gpu_matmul", "two_products"), ("gpu_mean_field", "settle"),
        ("gpu_bernoulli", "forward"), ("gpu_halves", "layer"), ("gpu_halves", "gradients"),
        ("gpu_noise", "fill"), ("gpu_positions", "fill"),
        ("gpu_norm", "sums"), ("gpu_norm", "totals"), ("gpu_norm", "gradient"), ("gpu_adam", "update"),
        ("gpu_draw", "draw"), ("gpu_draw", "draw_backward"),
        ("gpu_gaussian", "draw"), ("gpu_gaussian", "draw_backward"), ("gpu_gaussian", "totals"),
        ("gpu_convolution", "convolve"), ("gpu_convolution", "transpose"), ("gpu_convolution", "weight_gradient"),
        ("gpu_log_det", "invert"), ("gpu_shared", "quantize_weights"), ("gpu_narrow", "sweep"),
    }  # fmt: skip
    # The mean field has two block sizes, of which one must fit.
    fewest = {tuple(kernel): min(one[-1] for one in needs if one[:-1] == kernel) for *kernel, _ in needs}
    most = [shared for *kernel, shared in needs if kernel[1] != "settle"]
    assert max(*most, *fewest.values()) <= SHARED_MEMORY[capability], needs
    if capability == 90:
        widest = max(shared for *_, shared in needs)
        assert ("gpu_wide", "sweep") in {(module, name) for module, name, *_ in needs}
        assert widest > SHARED_MEMORY[80], "this size also fits on an A100"
