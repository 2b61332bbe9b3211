"""Files of the package rbms, read and written by both."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from boltzmann_machine.truth_by_states import HIDDEN, VISIBLE, some_data, states
from torch import Tensor

import softspin
from softspin.boltzmann_machine import BoltzmannModel
from softspin.boltzmann_machine.hdf5 import read_rbms
from softspin.distributions import BipartiteBoltzmann, GraphBoltzmann
from softspin.errors import SoftspinError

h5py = pytest.importorskip("h5py")


def parameters() -> tuple[Tensor, Tensor, Tensor]:
    g = torch.Generator().manual_seed(0)
    return tuple(torch.randn(shape, generator=g) for shape in ((VISIBLE,), (HIDDEN,), (VISIBLE, HIDDEN)))  # type: ignore[return-value]


def model() -> BoltzmannModel:
    vbias, hbias, weight = parameters()
    return BoltzmannModel.from_boltzmann(BipartiteBoltzmann(torch.cat([vbias, hbias]), weight), VISIBLE)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_rbms_reads_what_is_written_here(tmp_path: Path) -> None:
    io = pytest.importorskip("rbms.io")
    path = model().to_rbms(tmp_path / "model.h5")
    steps = model().config.steps
    read, chains, _, about = io.load_model(
        str(path), steps, device=torch.device("cpu"), dtype=torch.float64, restore=True
    )
    assert torch.allclose(
        read.compute_energy_visibles(states(VISIBLE)), model().free_energy(states(VISIBLE)), atol=1e-6
    )
    assert chains["visible"].shape == (100, VISIBLE)
    assert set(chains["visible"].unique().tolist()) <= {0.0, 1.0}
    assert (about["batch_size"], about["gibbs_steps"]) == (100, 1)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_what_rbms_writes_is_read_here(tmp_path: Path) -> None:
    io = pytest.importorskip("rbms.io")
    from rbms.bernoulli_bernoulli.classes import BBRBM

    vbias, hbias, weight = parameters()
    path = tmp_path / "theirs.h5"
    for update, scale in ((5, 0.5), (17, 1.0), (9, 0.1)):
        own = BBRBM(weight_matrix=scale * weight, vbias=vbias, hbias=hbias)
        io.save_model(str(path), own, own.init_chains(6), num_updates=update, time=1.5, flags=["checkpoint"])
    read = softspin.load_boltzmann(path)
    assert torch.equal(read.score_samples(states(VISIBLE)), model().score_samples(states(VISIBLE)))
    assert torch.equal(read_rbms(path, update=5).boltzmann().couplings, 0.5 * weight)
    with pytest.raises(SoftspinError, match="holds no update 6; there are 3, from 5 to 17"):
        read_rbms(path, update=6)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_rbms_resumes_what_was_trained_here_and_it_is_read_back(tmp_path: Path) -> None:
    """Three more updates by rbms' own training, from the step at which training ended here."""
    pcd = pytest.importorskip("rbms.training.pcd")
    from rbms.dataset.dataset_class import RBMDataset

    x = some_data()
    ours = softspin.fit_boltzmann(x, folder=tmp_path / "run", hidden=HIDDEN, steps=20, device="cpu", progress=False)
    path = ours.to_rbms(tmp_path / "model.h5")
    rows = RBMDataset(x, np.zeros(len(x)), np.ones((len(x), 1)), np.arange(len(x)), "bits", True, "cpu", torch.float32)
    args = {
        "filename": str(path), "overwrite": True, "restore": True, "num_updates": 23, "device": torch.device("cpu"),
        "dtype": torch.float32, "training_type": "pcd", "batch_size": None, "gibbs_steps": None, "L1": None, "L2": None,
        "learning_rate": None, "seed": None, "train_size": None, "beta": 1.0, "no_center": False,
    }  # fmt: skip
    with torch.random.fork_rng():  # rbms sets the global random numbers
        pcd.train(rows, rows, "BBRBM", args, torch.float32, np.array([23]))
    first, last = read_rbms(path, update=20), softspin.load_boltzmann(path)
    assert torch.equal(first.boltzmann().bias, ours.boltzmann().bias)
    change = (last.boltzmann().couplings - ours.boltzmann().couplings).abs().max()
    assert 1e-5 < change < 0.5
    assert last.score_samples(states(VISIBLE)).exp().sum() == pytest.approx(1)


def test_a_file_written_and_read_here_is_the_same(tmp_path: Path) -> None:
    read = softspin.load_boltzmann(model().to_rbms(tmp_path / "model.h5"))
    assert torch.equal(read.boltzmann().couplings, model().boltzmann().couplings)
    assert torch.equal(read.boltzmann().bias, model().boltzmann().bias)


def test_wrong_files_end_in_one_line(tmp_path: Path) -> None:
    def written(name: str, content: dict[str, Any]) -> Path:
        with h5py.File(tmp_path / name, "w") as file:
            for key, value in content.items():
                file[key] = value
        return tmp_path / name

    graph = BoltzmannModel.from_boltzmann(GraphBoltzmann(torch.zeros(2), torch.tensor([[0.0, 1.0], [1.0, 0.0]])), 2)
    good = {"vbias": np.zeros(2), "hbias": np.zeros(3), "weight_matrix": np.zeros((2, 3))}
    bad = {"NaN": np.full(2, np.nan), "shape": np.zeros(4), "text": "abc", "large": np.full(2, 1e60)}
    (tmp_path / "none.h5").write_bytes(b"nothing")
    cases = [
        (lambda: graph.to_rbms(tmp_path / "graph.h5"), "hold RBMs only"),
        (lambda: model().to_rbms(tmp_path / "model.pt"), r"must end in \.h5"),
        (lambda: softspin.load_boltzmann(tmp_path / "none.h5"), "cannot be read as a file of the package rbms"),
        (lambda: softspin.load_boltzmann(written("empty.h5", {"x": 1})), "holds no update_N"),
        (lambda: softspin.load_boltzmann(written("potts.h5", {"model_type": "PBRBM"})), "holds a PBRBM, not an RBM"),
        (lambda: softspin.load_boltzmann(written("lacks.h5", {"update_3/params/vbias": np.zeros(2)})), "hbias"),
    ]
    for name, value in bad.items():
        content = {f"update_1/params/{key}": one for key, one in {**good, "vbias": value}.items()}
        text = "do not fit together" if name == "shape" else "not finite numbers"
        cases.append((lambda c=content, n=name: softspin.load_boltzmann(written(f"{n}.h5", c)), text))  # type: ignore[misc]
    for call, text in cases:
        with pytest.raises(SoftspinError, match=text) as error:
            call()
        assert "\n" not in str(error.value)
    assert not (tmp_path / "graph.h5").exists()


def test_no_flipped_bit_changes_a_parameter_silently(tmp_path: Path) -> None:
    path = model().to_rbms(tmp_path / "model.h5")
    content, expected, errors = path.read_bytes(), model().prior.state_dict(), 0
    places = {name: content.find(value.numpy().tobytes()) for name, value in expected.items() if name == "weight"}
    assert min(places.values()) > 0
    for name, place in places.items():
        for bit in range(0, 8 * 4 * expected[name].numel(), 11):
            changed = bytearray(content)
            changed[place + bit // 8] ^= 1 << bit % 8
            path.write_bytes(changed)
            try:
                read = softspin.load_boltzmann(path)
            except SoftspinError:
                errors += 1
                continue
            assert all(torch.equal(value, expected[key]) for key, value in read.prior.state_dict().items())
    assert errors > 20


def test_a_small_file_with_huge_arrays_and_a_link_to_another_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = model().to_rbms(tmp_path / "model.h5")
    for name, text in (("bomb", "would take 298 GiB"), ("link", "in another file"), ("group", "cannot be read")):
        path = tmp_path / f"{name}.h5"
        path.write_bytes(own.read_bytes())
        with h5py.File(path, "a") as file:
            group = next(file[key] for key in file if key.startswith("update_"))["params"]
            del group["vbias"]
            if name == "bomb":
                group.create_dataset("vbias", shape=(40_000_000_000,), dtype="f8", chunks=(1_000_000,))
            elif name == "link":
                group["vbias"] = h5py.ExternalLink(str(own), f"{group.name}/vbias")
            else:
                group.create_group("vbias")
        with pytest.raises(SoftspinError, match=text):
            softspin.load_boltzmann(path)
