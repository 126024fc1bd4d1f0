"""Names of scores: the columns of this project and those of peers."""

OURS = {
    "rmd": "rmd",
    "md": "rmd",
    "rmd_loo": "rmd",
    "label_margin": "rmd",
    "suspicion": "suspicion",
    "agree": "agree",
    "ambiguity": "ambiguity",
    "kmeans": "kmeans",
    "knn": "knn",
    "uncertainty": "uncertainty",
}
"""Score columns of this project, with the method whose cell has them."""

PHOTO_ENCODER = "builtin-photos"
"""Encoder whose features are compared with people alone."""

WITH_SUSPICION = "suspicion and ambiguity"
"""The mean of the ranks of both."""

PEERS = {
    "cleanlab self_confidence": "cleanlab",
    "cleanlab normalized_margin": "cleanlab",
    "cleanlab confidence_weighted_entropy": "cleanlab",
    "AUM": "training",
    "EL2N": "training",
    "forgetting": "training",
    "kNN": "neighbours",
    "SimiFeat vote": "neighbours",
    "pytorch-ood Mahalanobis": "pytorch-ood",
    "pytorch-ood RMD": "pytorch-ood",
    "pytorch-ood RMD, own label": "pytorch-ood",
    "scikit-learn LDA": "lda",
    "scikit-learn LOF": "lof",
}
"""Score columns of peers, with the method whose cell has them."""

COLUMNS = OURS | PEERS
SUSPICION = "suspicion"


def label(column: str) -> str:
    """A column as pages name it: ours in code."""
    return f"`{column}`" if column in OURS else column
