"""Binary codes for the retrieval of similar images: python examples/retrieval.py --steps 2000.

The images are the 8 x 8 digits of scikit-learn; nothing is made up. Each image becomes 32 bits: the latent variables of
a VAE with a Gaussian likelihood, or for comparison the signs of 32 principal components. For 500 queries, the 10
nearest of the other images are those whose codes differ in the fewest bits. Precision at 10 is the share of them that
show the same digit; no model has seen the labels. The standard error is that over queries.
"""

import argparse
from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits
from sklearn.decomposition import PCA
from sklearn.model_selection import train_test_split

from softspin.sklearn import BinaryEncoder

BITS = 32


def nearest(codes: np.ndarray, queries: np.ndarray) -> np.ndarray:
    """Indices of the 10 nearest codes of each query, `(queries, 10)`; the order of the images, random, breaks ties."""
    distance = (queries[:, None] != codes).sum(-1)
    return np.argsort(distance, axis=1, kind="stable")[:, :10]


def draw(found: dict[str, np.ndarray], images: np.ndarray, queries: np.ndarray, path: Path) -> None:
    """Five queries in the first column, and what each code finds, nearest first."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 2.4), layout="constrained")
    for axes, (name, near) in zip(figure.subplots(1, len(found)), found.items(), strict=True):
        shown = np.concatenate([queries[:5, None], images[near[:5]]], axis=1).reshape(5, 11, 8, 8)
        framed = np.pad(shown, ((0, 0), (0, 0), (1, 1), (1, 1)))
        framed = np.insert(framed.swapaxes(1, 2).reshape(50, 110), 10, 16.0, axis=1)  # a line after the query
        axes.imshow(framed, cmap="gray_r")
        axes.set(title=f"query, and the 10 nearest by {name}", xticks=[], yticks=[])
    figure.savefig(path, dpi=120)


def main(steps: int = 2000, seed: int = 0, folder: str = "runs/retrieval") -> float:
    """Train, and return the precision at 10 of the codes."""
    x, labels = load_digits(return_X_y=True)
    images, queries, own, wanted = train_test_split(x, labels, test_size=500, random_state=seed)

    settings = {"layers": 1, "width": 100, "chains": 200, "sweeps": 5, "learning_rate": 0.003, "test_samples": 200}
    vae = BinaryEncoder(BITS, likelihood="gaussian", steps=steps, random_state=seed, folder=folder, settings=settings)
    vae.fit(images)
    pca = PCA(BITS, random_state=seed).fit(images)
    found = {
        "softspin": nearest(vae.transform(images), vae.transform(queries)),
        "PCA signs": nearest(pca.transform(images) > 0, pca.transform(queries) > 0),
    }
    precision = {name: (own[near] == wanted[:, None]).mean(1) for name, near in found.items()}
    precision["softspin - PCA signs"] = precision["softspin"] - precision["PCA signs"]
    for name, each in precision.items():
        print(f"{name}: precision at 10 {each.mean():.3f} +- {each.std(ddof=1) / len(each) ** 0.5:.3f}")
    draw(found, images, queries, Path(folder) / "retrieval.png")
    print(f"picture: {folder}/retrieval.png")
    return float(precision["softspin"].mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--folder", default="runs/retrieval")
    main(**vars(parser.parse_args()))
