"""Encoders of p(x | c): against sums over all states, and in scikit-learn's metadata routing."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sklearn
import torch
from boltzmann_machine.truth_by_states import states
from sklearn.base import clone
from sklearn.exceptions import UnsetMetadataPassedError
from sklearn.model_selection import GridSearchCV, KFold, cross_val_score, cross_validate
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer

import softspin
from softspin.data import from_arrays
from softspin.errors import SoftspinError
from softspin.sklearn import BinaryEncoder, BoltzmannMachine, annotate

ROWS, NAMES = 60, np.array(["left", "right"])
RNG = np.random.default_rng(0)
CLASS = RNG.permutation(np.arange(ROWS) % 2)
SHARES = np.array([[0.95, 0.95, 0.05, 0.05], [0.05, 0.05, 0.95, 0.95]])
"""Probability of each bit given the class: the class says nearly everything about a row."""
X = (RNG.random((ROWS, 4)) < SHARES[CLASS]).astype(float)
NUMBERS = np.stack([CLASS * 10.0, RNG.normal(size=ROWS)], 1)
SMALL: dict[str, Any] = {
    "width": 4, "chains": 10, "sweeps": 1, "batch_size": 20, "test_samples": 20, "test_chains": 10,
    "test_temperatures": 10, "validation_samples": 2,
}  # fmt: skip
LEARNS: dict[str, Any] = {"steps": 120, "settings": {**SMALL, "width": 8, "learning_rate": 0.03}}
REQUESTS = ("fit", "transform", "inverse_transform", "score")


def encoder(**changes: Any) -> BinaryEncoder:
    return BinaryEncoder(**{"n_bits": 4, "steps": 4, "random_state": 0, "settings": SMALL, **changes})


@pytest.fixture(scope="module")
def learned(tmp_path_factory: pytest.TempPathFactory) -> BinaryEncoder:
    """A trained encoder, read only."""
    settings = {**LEARNS["settings"], "test_samples": 1000}
    folder = tmp_path_factory.mktemp("conditions") / "run"
    return encoder(**{**LEARNS, "settings": settings}, folder=str(folder)).fit(X, condition=NAMES[CLASS])


@pytest.fixture
def routing() -> Iterator[None]:
    with sklearn.config_context(enable_metadata_routing=True):
        yield


def requesting(estimator: Any) -> Any:
    for method in REQUESTS:
        getattr(estimator, f"set_{method}_request")(condition=True)
    return estimator


def test_scores_are_those_of_a_sum_over_all_codes(learned: BinaryEncoder) -> None:
    """log p(x | c) = log sum_z p(z | c) p(x | z, c), over 16 codes, with the parameters in the run directory."""
    assert learned.folder is not None
    stored, rows, codes = softspin.load(learned.folder, device="cpu"), states(4), states(4).float()
    exact = {}
    for name in NAMES:
        prior = stored.prior(condition=name).log_prob(codes).double()
        mean = stored.decode(codes, condition=name).double()
        log_x = rows @ mean.log().T + (1 - rows) @ (1 - mean).log().T
        exact[name] = torch.logsumexp(prior + log_x, 1).numpy()
        assert np.exp(exact[name]).sum() == pytest.approx(1, abs=1e-4)
        found = learned.score_samples(rows.numpy(), condition=np.full(len(rows), name))
        np.testing.assert_allclose(found, exact[name], atol=0.2)
        assert learned.score(rows.numpy(), condition=name) == pytest.approx(found.mean()), "one value is for all rows"
    assert np.abs(exact["left"] - exact["right"]).max() > 2, "the classes must differ by more than the tolerance"
    mixed = learned.score_samples(X[:10], condition=NAMES[CLASS[:10]])
    place = (X[:10] @ [8, 4, 2, 1]).astype(int)
    np.testing.assert_allclose(mixed, np.stack([exact[name] for name in NAMES])[CLASS[:10], place], atol=0.2)


def test_samples_and_decoded_codes_are_those_of_the_class(learned: BinaryEncoder) -> None:
    drawn = learned.sample(400, condition=NAMES[np.arange(400) % 2], random_state=1)
    np.testing.assert_allclose(drawn[::2].mean(0), SHARES[0], atol=0.15)
    np.testing.assert_allclose(drawn[1::2].mean(0), SHARES[1], atol=0.15)
    one = learned.sample(50, condition="right", random_state=1)
    np.testing.assert_allclose(one.mean(0), SHARES[1], atol=0.15)
    codes = learned.transform(X, condition=NAMES[CLASS])
    np.testing.assert_allclose(learned.inverse_transform(codes, condition=NAMES[CLASS]), SHARES[CLASS], atol=0.35)


@pytest.mark.parametrize("condition", [CLASS, NAMES[CLASS], NUMBERS, NUMBERS[:, 1]], ids=["class", "text", "2", "1"])
def test_all_results_are_those_of_the_model(condition: Any, tmp_path: Path) -> None:
    ours = encoder(folder=str(tmp_path / "run"))
    codes = ours.fit_transform(X, condition=condition)
    stored = softspin.load(tmp_path / "run", device="cpu")
    bits, given = X.astype(np.uint8), {"condition": condition}
    np.testing.assert_array_equal(codes, stored.encode(bits, sample=False, **given).numpy())
    np.testing.assert_array_equal(ours.score_samples(X, **given), stored.score_samples(bits, **given).numpy())
    np.testing.assert_array_equal(
        ours.inverse_transform(codes, **given), stored.decode(torch.from_numpy(codes), **given).numpy()
    )
    np.testing.assert_array_equal(ours.sample(5, condition=condition[:5], random_state=3),
                                  stored.sample(5, condition=condition[:5], seed=3).numpy())  # fmt: skip
    ours.set_params(output="probabilities")
    np.testing.assert_array_equal(ours.transform(X, **given), stored.probabilities(bits, **given).numpy())


def test_training_is_that_of_fit_with_the_condition_of_each_row(tmp_path: Path) -> None:
    """The first draw of the generator orders the rows; conditions follow their rows."""
    order = np.random.default_rng(0).permutation(ROWS)
    _, first = np.unique(CLASS[order], return_index=True)
    order = np.concatenate([np.delete(order, first), order[first]])  # one row of each class stays in training
    bits, valid, train = X.astype(np.uint8), order[:6], order[6:]
    config = softspin.Config(structure="1-nonlinear", bits_per_group=4, device="cpu", seeds=(0,), **SMALL)
    given = {"train": CLASS[train], "valid": CLASS[valid], "test": CLASS[valid]}
    data = from_arrays(bits[train], bits[valid], bits[valid])
    quiet: dict[str, Any] = {"progress": False, "pictures": False}
    model = softspin.fit(config.replace(steps=4), data, tmp_path / "run", condition=given, **quiet)
    ours = encoder().fit(X, condition=CLASS)
    for name, value in model.net.state_dict().items():
        assert torch.equal(value, ours.model_.net.state_dict()[name]), name


def test_copies_keep_the_condition(learned: BinaryEncoder) -> None:
    again = pickle.loads(pickle.dumps(learned))
    np.testing.assert_array_equal(again.sample(4, condition="left", random_state=0),
                                  learned.sample(4, condition="left", random_state=0))  # fmt: skip
    assert again.model_.class_names == ("left", "right")
    fresh = clone(learned)
    assert "condition" not in fresh.get_params()
    assert not hasattr(fresh, "model_")


@pytest.mark.filterwarnings("ignore:batch_size")
def test_every_class_stays_in_training() -> None:
    """Two classes of one row each, at any seed and with many rows for validation."""
    rare = NAMES[CLASS].astype(object)
    rare[3], rare[5] = "only", "once"
    for seed in range(5):
        ours = encoder(steps=1, random_state=seed, validation_fraction=0.99).fit(X, condition=rare)
        assert ours.model_.class_names == ("left", "once", "only", "right")
        assert np.isfinite(ours.score_samples(X, condition=rare)).all()


def test_forms_of_conditions() -> None:
    pd: Any = pytest.importorskip("pandas")
    text = NAMES[CLASS]
    expected = encoder().fit(X, condition=text)
    frame = pd.DataFrame({"side": text})
    for given in (text.tolist(), text[:, None], pd.Series(text), frame, pd.Categorical(text)):
        ours = encoder().fit(X, condition=given)
        np.testing.assert_array_equal(ours.score_samples(X, condition=given), expected.score_samples(X, condition=text))
    ordered = encoder().fit(X, condition=pd.Series(pd.Categorical(text, ["right", "left", "none"])))
    assert ordered.model_.class_names == ("right", "left")
    numbers = encoder().fit(X, condition=torch.from_numpy(NUMBERS))
    np.testing.assert_array_equal(
        numbers.transform(X, condition=pd.DataFrame(NUMBERS)), numbers.transform(X, condition=NUMBERS.tolist())
    )


def test_columns_of_anndata() -> None:
    anndata = pytest.importorskip("anndata")
    cells = anndata.AnnData(X.copy())
    cells.obs["side"] = NAMES[CLASS]
    ours, plain = encoder().fit(cells, condition="side"), encoder().fit(X, condition=NAMES[CLASS])
    codes, scores = (getattr(plain, name)(X, condition=NAMES[CLASS]) for name in ("transform", "score_samples"))
    np.testing.assert_array_equal(ours.transform(cells, condition="side"), codes)
    annotate(ours, cells, condition="side")
    np.testing.assert_array_equal(cells.obsm["X_softspin"], codes)
    np.testing.assert_array_equal(cells.obs["softspin_log_likelihood"], scores)
    with pytest.raises(
        SoftspinError, match=r"^the condition 'batch' is not a column of obs; columns: side, softspin_lo"
    ):
        encoder().fit(cells, condition="batch")
    with pytest.raises(SoftspinError, match="a BoltzmannMachine has no condition; leave it out"):
        annotate(BoltzmannMachine(2, max_iter=1).fit(X), cells, condition="side")


MISTAKES: list[tuple[Any, str]] = [
    (CLASS[:-1], "the condition has 59 rows; it must have one for each of 60"),
    (CLASS[:1], "the condition has 1 row; it must have one for each of 60"),
    ("left", "the condition is 'left' for all rows; fit needs one for each row of X"),
    (1, "the condition is 1 for all rows; fit needs one for each row of X"),
    (np.zeros(ROWS, int), "the condition is the same class for all training images; train without a condition"),
    (np.where(CLASS, np.nan, 0.5), "the condition is nan in row "),
    (np.stack([CLASS, CLASS], 1), "the condition has 2 columns of integers; give one column for a class"),
    ([None] * ROWS, "the condition must be integers or text"),
    ({"train": CLASS}, "the condition is a mapping; give an array with one row for each row of X"),
    (np.arange(ROWS).astype(str), "the condition has 60 classes in 60 rows; no row is left for validation"),
    (np.repeat([[*"ab"]], ROWS, 0), "the condition has 2 columns of text; give one column for a class"),
]


@pytest.mark.parametrize(("condition", "text"), MISTAKES)
def test_mistakes_of_fit_end_in_one_line(condition: Any, text: str) -> None:
    with pytest.raises(SoftspinError) as told:
        encoder().fit(X, condition=condition)
    assert str(told.value).startswith(text)
    assert "\n" not in str(told.value)


def test_mistakes_of_queries_end_in_one_line(learned: BinaryEncoder) -> None:
    plain, numbers = encoder().fit(X), encoder().fit(X, condition=NUMBERS)
    missing = "this model is of p(x | c); give condition=... or --condition: a class, one of left, right"
    none = "this model has no condition: it is of p(x), not of p(x | c); leave out the condition"
    cases: list[tuple[BinaryEncoder, Any, str]] = [
        (learned, None, missing),
        (plain, CLASS, none),
        (plain, CLASS[:7], none),
        (learned, NAMES[CLASS][:-1], "the condition has 59 rows; it must have one for each of 60"),
        (learned, NAMES[CLASS][:1], "the condition has 1 row; it must have one for each of 60"),
        (learned, np.append(NAMES[CLASS][1:], "lefd"), "unknown class 'lefd'; did you mean 'left'? known: left, right"),
        (learned, CLASS, "the classes of this model have names; give left, right, not numbers"),
        (numbers, NUMBERS[:, 0], "the condition has 1 column; this model needs 2 numbers for each image"),
    ]
    for ours, condition, text in cases:
        for query in ("transform", "score_samples", "score", "inverse_transform"):
            with pytest.raises(SoftspinError) as told:
                getattr(ours, query)(X, condition=condition)
            assert str(told.value) == text, query
        with pytest.raises(SoftspinError) as told:
            ours.sample(ROWS, condition=condition)
        assert str(told.value) == text
    # As many numbers as rows: a model would read them as one row for all.
    with pytest.raises(SoftspinError, match="the condition has 1 column; this model needs 2 numbers"):
        numbers.transform(X[:2], condition=np.array([0.0, 1.0]))
    classes = encoder().fit(X, condition=CLASS)
    with pytest.raises(SoftspinError, match="class 2 did not occur in training; use one of 0, 1"):
        classes.transform(X, condition=CLASS + 1)


@pytest.mark.usefixtures("routing")
def test_a_pipeline_passes_the_condition() -> None:
    """The likelihood with the right classes is near that of the data, with the wrong ones far below.

    So a step that ignored the condition, in training or afterwards, would fail.
    """
    first = FunctionTransformer(lambda x: x > 0.5)
    made = make_pipeline(first, requesting(encoder(**LEARNS)))
    assert isinstance(made.fit(X * 0.9, condition=CLASS), Pipeline)
    ideal = (X * np.log(SHARES[CLASS]) + (1 - X) * np.log(1 - SHARES[CLASS])).sum(1).mean()
    assert made.score(X, condition=CLASS) > ideal - 0.3
    assert made.score(X, condition=1 - CLASS) < ideal - 3
    direct = encoder(**LEARNS).fit(X, condition=CLASS)
    codes = made.transform(X, condition=CLASS)
    np.testing.assert_array_equal(codes, direct.transform(X, condition=CLASS))
    means = made[-1:].inverse_transform(codes, condition=CLASS)
    np.testing.assert_array_equal(means, direct.inverse_transform(codes, condition=CLASS))
    np.testing.assert_array_equal(clone(made).fit_transform(X, condition=CLASS), codes)
    codes_first = Pipeline([("codes", requesting(encoder())), ("copy", FunctionTransformer())])
    np.testing.assert_array_equal(codes_first.fit(X, condition=CLASS).transform(X, condition=CLASS),
                                  encoder().fit_transform(X, condition=CLASS))  # fmt: skip
    with pytest.raises(UnsetMetadataPassedError, match="condition"):
        make_pipeline(first, encoder()).fit(X, condition=CLASS)
    missing = r"this model is of p\(x \| c\); give condition=\.\.\. or --condition: a class, one of 0, 1"
    with pytest.raises(SoftspinError, match=missing):
        made.score(X)


@pytest.mark.usefixtures("routing")
@pytest.mark.parametrize("condition", [NAMES[CLASS], NAMES[CLASS].tolist(), CLASS], ids=["text", "list", "class"])
def test_cross_validation_takes_the_conditions_of_the_rows_of_a_fold(condition: Any) -> None:
    folds, given = KFold(2, shuffle=True, random_state=0), np.asarray(condition)
    made = requesting(encoder())
    found = cross_validate(made, X, cv=folds, params={"condition": condition}, error_score="raise")["test_score"]
    by_hand = [
        encoder().fit(X[train], condition=given[train]).score(X[test], condition=given[test])
        for train, test in folds.split(X)
    ]
    np.testing.assert_array_equal(found, by_hand)
    other = encoder().fit(X, condition=given).score(X, condition=given)
    assert not np.isclose(found, other, atol=1e-5).any()


@pytest.mark.usefixtures("routing")
def test_a_grid_search_passes_the_condition() -> None:
    made = make_pipeline(FunctionTransformer(), requesting(encoder(**LEARNS)))
    search = GridSearchCV(made, {"binaryencoder__steps": [1, 120]}, cv=2, error_score="raise")
    search.fit(X, condition=CLASS)
    assert search.best_estimator_[-1].model_.net.condition is not None
    assert search.best_params_ == {"binaryencoder__steps": 120}
    assert search.score(X, condition=CLASS) > search.score(X, condition=1 - CLASS) + 3
    plain = cross_val_score(encoder(), X, cv=2, error_score="raise")
    assert np.isfinite(plain).all(), "without a condition, nothing is requested"


def test_weights_count_rows(learned: BinaryEncoder) -> None:
    """A row of weight 3 counts as 3 rows."""
    given, counts = NAMES[CLASS], np.arange(ROWS) % 4
    scores = learned.score_samples(X, condition=given)
    assert learned.score(X, sample_weight=counts, condition=given) == pytest.approx(np.repeat(scores, counts).mean())
    for wrong, text in (
        (counts[1:], r"sample_weight has shape \(59,\); it must be \(60,\), one for each row of X"),
        (counts - 1, "sample_weight must have finite weights from 0, and not only 0"),
        (0 * counts, "sample_weight must have finite weights from 0, and not only 0"),
    ):
        with pytest.raises(SoftspinError, match=text):
            learned.score(X, sample_weight=wrong, condition=given)


def test_without_routing_fit_takes_the_condition_of_a_step() -> None:
    made = make_pipeline(FunctionTransformer(), encoder()).fit(X, binaryencoder__condition=CLASS)
    np.testing.assert_array_equal(made[-1].transform(X, condition=CLASS), encoder().fit_transform(X, condition=CLASS))
