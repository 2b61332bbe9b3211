"""Anomalies in a table by their log-likelihood: python examples/anomalies.py --steps 1500.

The table is the breast cancer data of scikit-learn: 30 real numbers of 569 biopsies. Nothing is made up, but the task
is: all models see benign biopsies only, and malignant ones are the anomalies. The score is log p(x) of a VAE with
binary latent variables and a Gaussian likelihood, against IsolationForest and scikit-learn's BernoulliRBM, whose score
is a pseudo-likelihood of data scaled to [0, 1]. Errors: DeLong, DeLong and Clarke-Pearson (1988).
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import IsolationForest
from sklearn.model_selection import train_test_split
from sklearn.neural_network import BernoulliRBM
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from softspin.sklearn import BinaryEncoder


def placements(normal: np.ndarray, anomalies: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For each row the share of rows of the other kind that it is separated from; the mean of either is the AUROC."""
    told = (normal[:, None] > anomalies) + 0.5 * (normal[:, None] == anomalies)
    return told.mean(1), told.mean(0)


def mean_and_error(of_normal: np.ndarray, of_anomalies: np.ndarray) -> tuple[float, float]:
    """AUROC, or a difference of two, with its standard error over both kinds of rows."""
    variance = of_normal.var(ddof=1) / len(of_normal) + of_anomalies.var(ddof=1) / len(of_anomalies)
    return float(of_normal.mean()), float(variance) ** 0.5


def draw(scores: dict[str, np.ndarray], normal: int, path: Path) -> None:
    """Histograms of the score of the VAE, and the ROC curves of all models."""
    from matplotlib.figure import Figure
    from sklearn.metrics import roc_curve

    figure = Figure(figsize=(9, 3.5), layout="constrained")
    left, right = figure.subplots(1, 2)
    first = scores["softspin"].clip(-150)
    left.hist([first[:normal], first[normal:]], bins=40, stacked=True, label=["benign", "malignant"])
    left.set(xlabel="log p(x), nats of a density; lower ones at -150", ylabel="test rows")
    for name, score in scores.items():
        right.plot(*roc_curve(np.arange(len(score)) >= normal, -score)[:2], label=name)
    right.set(xlabel="benign rows that are flagged", ylabel="malignant rows that are flagged")
    for axes in (left, right):
        axes.legend()
    figure.savefig(path, dpi=120)


def main(steps: int = 1500, seed: int = 0, folder: str = "runs/anomalies") -> float:
    """Train, and return the AUROC of the log-likelihood."""
    x, benign = load_breast_cancer(return_X_y=True)
    train, normal = train_test_split(x[benign == 1], test_size=157, random_state=seed)
    test = np.concatenate([normal, x[benign == 0]])

    settings = {"layers": 1, "width": 50, "batch_size": 50, "chains": 200, "sweeps": 5, "learning_rate": 0.003}
    vae = BinaryEncoder(16, likelihood="gaussian", steps=steps, random_state=seed, folder=folder, settings=settings)
    rbm = BernoulliRBM(32, learning_rate=0.01, n_iter=100, random_state=seed)
    models = {"softspin": vae, "IsolationForest": IsolationForest(random_state=seed)}
    models["BernoulliRBM"] = make_pipeline(MinMaxScaler(clip=True), rbm)
    scores = {name: model.fit(train).score_samples(test) for name, model in models.items()}

    places = {name: placements(score[:157], score[157:]) for name, score in scores.items()}
    for name, own in places.items():
        print("{}: AUROC {:.3f} +- {:.3f}".format(name, *mean_and_error(*own)))
    for name in ("IsolationForest", "BernoulliRBM"):
        gain = [a - b for a, b in zip(places["softspin"], places[name], strict=True)]
        print("softspin - {}: {:+.3f} +- {:.3f}".format(name, *mean_and_error(*gain)))
    draw(scores, 157, Path(folder) / "anomalies.png")
    print(f"picture: {folder}/anomalies.png")
    return mean_and_error(*places["softspin"])[0]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=1500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="runs/anomalies")
    main(**vars(parser.parse_args()))
