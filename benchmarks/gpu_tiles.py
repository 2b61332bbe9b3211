"""Time of the kernels of a training step at K = 25 by tile, number of warps and other choices.

    python benchmarks/gpu_tiles.py [--only KERNEL ...] [--other NAME=DIRECTORY] [--alone FILE] [--seconds 90]
    python benchmarks/gpu_tiles.py --registers
    TRITON_INTERPRET=1 python benchmarks/gpu_tiles.py --check

Shapes are those of 2-nonlinear with 5 replicas and 1-nonlinear with 3. `alone` is the time of a launch in a graph of
one after another. `of 4` is that of each launch if four streams launch at a time: the work of the chip, which counts if
other programs or other kernels of the step use it too. The choice of the package is measured first and last. A result
that differs from its result by more than the tolerance has a "!".

All choices are compiled first, in one process for each core, for compute capability 9.0. --other adds the kernels of
another version of the package, from its directory `kernels`; --no-tiles compares only these. --registers prints what
the compiler reports, without a GPU. --check runs all choices on small shapes.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import itertools
import math
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unittest import mock

import torch
import triton
from alone import alone
from torch import Tensor
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.errors import OutOfResources

from softspin import kernels
from softspin.errors import TooLargeError
from softspin.kernels.halves import LOW, halves

COUNT, STREAMS, REPLAYS = 16, 4, 5
TOLERANCE = 1e-5
"""Of the largest value of a result. Other tiles add in another order."""
HERE = Path(str(kernels.__file__)).parent
MODULES = ("gpu_shared", "gpu_halves", "gpu_mean_field", "gpu_bernoulli", "gpu_norm", "gpu_draw")
"""In the order of their imports."""
Modules = dict[str, ModuleType]


class Choice(NamedTuple):
    """Constants of modules, such as `gpu_halves.ROWS`, and options of the launches of a kernel."""

    name: str
    constants: dict[str, int]
    options: dict[str, Any]
    directory: Path = HERE


class Case(NamedTuple):
    """A launch of a kernel on given shapes, and its results in a form that no tile changes."""

    kernel: str
    shape: str
    launcher: str
    make: Callable[[], tuple[Any, ...]]
    results: Callable[[Modules, Any], list[Tensor]] = lambda _, out: [*out]

    def launch(self, modules: Modules, arguments: tuple[Any, ...]) -> Any:
        module, _, name = self.launcher.partition(".")
        return getattr(modules[module], name)(*arguments)


def tile(rows: int, columns: int, depth: int, warps: int, stages: int, most: int = 0, part: int = 320) -> Choice:
    """A choice for the products. `most` is a limit on the registers of a thread."""
    name = f"{rows} x {columns} x {depth}, {warps} warps, {stages} stages"
    name += (f", {most} registers" if most else "") + (f", parts of {part}" if part != 320 else "")
    constants = {"ROWS": rows, "LAYER_ROWS": rows, "COLUMNS": columns, "DEPTH": depth, "PART": part}
    constants |= {"WARPS": warps, "STAGES": stages}
    options = {"maxnreg": most} if most else {}
    return Choice(name, {f"gpu_halves.{key}": value for key, value in constants.items()}, options)


TILES = [
    *(tile(64, 64, 32, 4, stages) for stages in (2, 4)), *(tile(64, 64, 32, 4, 2, most) for most in (80, 96)),
    tile(64, 64, 32, 8, 3, 80),
    *(tile(128, 64, 32, 4, 3, most) for most in (0, 168)), *(tile(128, 64, 32, 8, 3, most) for most in (128, 80)),
    tile(128, 64, 32, 8, 2, 128), tile(128, 64, 64, 8, 2, 128), *(tile(64, 128, 32, 4, 3, most) for most in (0, 168)),
    tile(64, 128, 32, 8, 3, 128), tile(128, 128, 32, 8, 3), tile(128, 128, 32, 8, 3, 128), tile(64, 256, 32, 8, 2),
]  # fmt: skip
CHOICES: dict[str, list[Choice]] = {
    "layer": [tile(64, 64, 32, 4, 3), *TILES],
    "gradients": [*TILES, tile(64, 64, 32, 4, 3, part=640), tile(128, 64, 32, 8, 3, 128, 640)],
    "forward": TILES[:-1],
    "sums": [
        Choice(f"blocks of {block}, steps of {step}, {warps} warps, {most} registers",
               {"gpu_norm.BLOCK": block, "gpu_norm.STEP": step}, {"num_warps": warps, "maxnreg": most})
        for block, step, warps, most in (
            (32, 8, 4, 128), (32, 8, 8, 128), (32, 8, 8, 80), (16, 8, 4, 128), (16, 8, 4, 80), (32, 4, 4, 128),
            (64, 16, 8, 128),
        )
    ],
    "gradient": [
        Choice(f"{rows} rows, {warps} warps, {most} registers", {"gpu_norm.ROWS": rows},
               {"num_warps": warps, "maxnreg": most})
        for rows, warps, most in ((16, 4, 96), (16, 8, 80), (16, 8, 64), (32, 8, 128), (32, 8, 80), (8, 4, 96))
    ],
    "settle": [
        *(Choice(f"tiles of {widest}", {"gpu_mean_field.WIDEST": widest}, {}) for widest in (32, 64)),
        *(Choice(f"64 rows, tiles of {widest}", {"gpu_mean_field.WIDEST": widest}, {"ROWS": 64, "num_warps": 4})
          for widest in (64, 128)),
    ],
    "draw": [
        Choice(f"{rows} rows, {warps} warps", {"gpu_draw.ROWS": rows}, {"num_warps": warps})
        for rows, warps in ((1, 2), (2, 2), (2, 8), (4, 4), (8, 8))
    ],
}  # fmt: skip
CHOICES["draw_backward"] = CHOICES["draw"]


def load(choice: Choice, kernel: str) -> Modules:
    """Load the modules of the kernels once more, with the constants and launch options of a choice."""
    found: Modules = {}
    with mock.patch.dict(sys.modules):
        for name in MODULES:
            spec = importlib.util.spec_from_file_location(f"softspin.kernels.{name}", choice.directory / f"{name}.py")
            if spec is None or spec.loader is None:
                raise ImportError(f"no {name} in {choice.directory}")
            module = found[name] = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
            spec.loader.exec_module(module)
            for place, value in choice.constants.items():
                owner, _, constant = place.partition(".")
                if owner == name and isinstance(value_now := getattr(module, constant), triton.language.constexpr):
                    value_now.value = value  # in place: also where other modules and default arguments have it
                elif owner == name:
                    setattr(module, constant, value)
    for module in found.values():
        if kernel in vars(module) and choice.options:
            function = getattr(module, kernel)
            function.run = functools.partial(run_with, function.run, choice.options)
    return found


def run_with(run: Callable[..., Any], options: dict[str, Any], *arguments: Any, **given: Any) -> Any:
    """Launch with other options. The launch of the mean field has computed the grid from its own number of rows."""
    if "ROWS" in options:
        given["grid"] = (triton.cdiv(given["grid"][0] * given["ROWS"], options["ROWS"]), *given["grid"][1:])
    return run(*arguments, **given | options)


def cases(device: str, rows: int, units: int, pixels: int, r: int) -> Iterator[Case]:
    """All kernels for `r` replicas, layers of some units and images of some pixels, with 25 samples of each image."""
    normal = functools.partial(torch.randn, device=device)
    bits = functools.partial(normal, r, 25, rows // 25, units)

    def layer(inputs: int) -> tuple[Any, ...]:
        x, weight = torch.tanh(normal(r, rows, inputs)), normal(r, inputs, units) / inputs**0.5
        return halves(x), halves(weight), normal(r, 1, units), False

    def gradients(joint: int, inputs: int, columns: int) -> tuple[Any, ...]:
        every = normal(r, rows, columns) / 8, normal(r, inputs, columns) / inputs**0.5, normal(r, rows, joint) / 8
        return *(halves(one) for one in every), normal(r, rows), False

    def forward() -> tuple[Any, ...]:
        image = (normal(r, rows // 25, pixels) > 0.5).float()
        weight = normal(r, units, pixels) / units**0.5
        return halves(torch.tanh(normal(r, rows, units))), halves(weight), normal(r, pixels), image, False, True

    def norm() -> tuple[Tensor, ...]:
        """Gradient and y of a batch norm, the mean of y and one over its standard deviation, scale and shift."""
        y = normal(r, rows, units)
        return normal(r, rows, units), y, y.mean(1), 1 / y.std(1), normal(r, units), normal(r, units)

    def settle() -> tuple[Any, ...]:
        return 3 * normal(r, rows, 2 * units), normal(r, 2 * units), normal(r, units, units) / 8, 5, False

    def draw() -> tuple[Any, ...]:
        return bits()[:, :1], torch.sigmoid(bits()), torch.sigmoid(bits()), 5 + normal(r).abs(), 0.0, 0

    def draw_backward() -> tuple[Any, ...]:
        return bits()[:, :1], bits(), 5 + normal(r).abs(), bits(), bits(), bits()[..., 0], 0.0, 0

    head = f"{r} x {rows} x {units}"
    for joint, inputs, columns in ((units, units, units), (2 * units, 2 * units, units), (units + 8, units, pixels)):
        what = f"{r} x {rows} x {inputs} x {columns}"
        if columns == units:
            yield Case("layer", what, "gpu_halves.launch_layer", functools.partial(layer, inputs), layer_results)
        make = functools.partial(gradients, joint, inputs, columns)
        yield Case("gradients", what, "gpu_halves.launch_gradients", make, lambda _, out: [out[0], out[1].sum(0)])
    yield Case("forward", what, "gpu_bernoulli.launch_forward", forward, lambda _, out: [out[0].sum(0), join(*out[1:])])
    yield Case("sums", head, "gpu_norm.launch_sums", norm)
    with_sums = lambda: (*norm(), normal(3, r, units).abs())  # noqa: E731
    yield Case("gradient", head, "gpu_norm.launch_gradient", with_sums, lambda _, out: [join(*out[:2]), out[2]])
    yield Case("settle", f"{head} x {units}", "gpu_mean_field.launch", settle)
    yield Case("draw", head, "gpu_draw.launch", draw)
    yield Case("draw_backward", head, "gpu_draw.launch_backward", draw_backward, lambda _, out: [out])


def join(high: Tensor, low: Tensor) -> Tensor:
    return high.float() + low.float() / LOW


def layer_results(modules: Modules, found: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """Outputs, and sums and sums of squares of the columns."""
    out, sums, deviations = found
    size = modules["gpu_halves"].LAYER_ROWS.value
    count = (out.shape[1] - size * torch.arange(len(sums), device=out.device)).clamp_max(size)[:, None, None]
    return [out, sums.sum(0), (deviations + sums.square() / count).sum(0)]


def difference(found: list[Tensor], expected: list[Tensor]) -> float:
    """The largest difference, in units of the largest value of a result."""
    return max(((a - b).abs().max() / b.abs().max()).item() for a, b in zip(found, expected, strict=True))


class Absent:
    """Stands for a GPU where kernels are only compiled."""

    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0


def compile_choice(job: tuple[str, Choice, bool]) -> tuple[str, str, str]:
    """Compile the kernels of a choice into Triton's cache. Return kernel, name, and the resources or an error."""
    kernel, choice, report = job
    torch.set_num_threads(1)
    driver.set_active(Absent())
    found = []

    run = triton.runtime.JITFunction.run

    def compile_only(self: Any, *given: Any, grid: tuple[int, ...], warmup: bool, **options: Any) -> None:
        made = run(self, *given, grid=grid, warmup=True, **options)
        if report:
            found.append(resources(made, math.prod(grid)))

    try:
        with mock.patch.object(triton.runtime.JITFunction, "run", compile_only):
            modules = load(choice, kernel)
            for case in (case for case in cases("cpu", 2500, 200, 784, 5) if case.kernel == kernel):
                case.launch(modules, case.make())
    except Exception as error:  # of the compiler
        return kernel, choice.name, f"error: {str(error).splitlines()[0]}"
    return kernel, choice.name, "; ".join(dict.fromkeys(found))


def resources(made: Any, programs: int) -> str:
    """Registers, stack and shared memory, and how many times the programs fill an H200."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
        text = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    registers, stack = (int(re.findall(rf"{name}:(\d+)", text)[0]) for name in ("REG", "STACK"))
    warps, shared = made.metadata.num_warps, made.metadata.shared
    at_once = min(65536 // (-(-registers // 8) * 256 * warps), 233472 // (shared + 1024), 64 // warps)
    used = f"{registers} registers, {stack} B of stack, {shared} B shared"
    return f"{used}, {at_once} programs a multiprocessor, {programs / 132 / at_once:.2f} waves"


def compile_all(jobs: list[tuple[str, Choice, bool]], seconds: float) -> dict[tuple[str, str], str]:
    """Compile in parallel processes. What is not ready in time is not in the result."""
    done: dict[tuple[str, str], str] = {}
    end = time.monotonic() + seconds
    with multiprocessing.get_context("fork").Pool(os.cpu_count()) as pool:
        ready = pool.imap_unordered(compile_choice, jobs)
        for _ in jobs:
            try:
                kernel, name, text = ready.next(max(0.0, end - time.monotonic()))
            except multiprocessing.TimeoutError:
                break
            done[kernel, name] = text
    return done


def microseconds(launch: Callable[[], Any], streams: int) -> float:
    """Time of a launch among COUNT on each of some streams, the median over replays of a graph."""
    side = [torch.cuda.Stream() for _ in range(streams)]
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        for stream in side:
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                for _ in range(COUNT):
                    launch()
        for stream in side:
            main.wait_stream(stream)
    times = []
    for _ in range(REPLAYS + 1):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(1e3 * start.elapsed_time(end) / COUNT / streams)
    return sorted(times[1:])[REPLAYS // 2]


def measure(
    kernel: str, ready: list[Choice], some: Iterator[Case], timer: Callable[[Callable[[], Any], int], float], end: float
) -> None:
    """Print a table for each shape of a kernel, sorted by the time of a launch alone."""
    loaded = [(choice.name, load(choice, kernel)) for choice in ready]
    for case in (case for case in some if case.kernel == kernel):
        if time.monotonic() > end:
            print(f"{kernel} {case.shape}: no time left", flush=True)
            continue
        rows, arguments = [], case.make()
        expected = case.results(loaded[0][1], case.launch(loaded[0][1], arguments))
        for name, modules in [*loaded, loaded[0]]:
            launch = functools.partial(case.launch, modules, arguments)
            try:
                off = difference(case.results(modules, launch()), expected)
                rows.append((timer(launch, 1), timer(launch, STREAMS), off, name))
            except (RuntimeError, OutOfResources, TooLargeError) as error:
                print(f"{kernel}, {name}: does not run: {str(error)[:100]}")
        print(f"\n{kernel} {case.shape}\n  alone, us  of {STREAMS}, us  difference")
        for one, of_many, off, name in sorted(rows):
            print(f"{one:11.1f} {of_many:9.1f} {off:11.1e}{' ' if off <= TOLERANCE else '!'} {name}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=[*CHOICES], default=[*CHOICES])
    parser.add_argument("--other", action="append", default=[], metavar="NAME=DIRECTORY")
    for flag in ("--no-tiles", "--registers", "--check"):
        parser.add_argument(flag, action="store_true")
    parser.add_argument("--alone", type=Path)
    parser.add_argument("--seconds", type=float, default=90.0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    versions = [Choice("as chosen", {}, {})]
    versions += [Choice(name, {}, {}, Path(path)) for name, path in (one.split("=", 1) for one in options.other)]
    every = {kernel: versions + [*CHOICES[kernel]] * (not options.no_tiles) for kernel in options.only}
    if options.check:
        for kernel, some in every.items():
            measure(kernel, some, cases("cpu", 75, 16, 72, 2), lambda launch, streams: 0.0, math.inf)
        return
    jobs = [(kernel, choice, options.registers) for kernel, some in every.items() for choice in some]
    jobs.sort(key=lambda job: job[0] != "settle")  # the longest first
    compiled = compile_all(jobs, 1e6 if options.registers else options.seconds / 2)
    for kernel, choice, _ in jobs:
        if text := compiled.get((kernel, choice.name), "not compiled in time"):
            print(f"{kernel}, {choice.name}: {text}", flush=True)
    if not options.registers:
        with alone(options.alone):
            for kernel, some in every.items():
                ready = [choice for choice in some if compiled.get((kernel, choice.name)) == ""]
                shapes = itertools.chain.from_iterable(cases("cuda", 2500, 200, 784, count) for count in (5, 3))
                if versions[0] in ready:
                    measure(kernel, ready, shapes, microseconds, end)


if __name__ == "__main__":
    main()
