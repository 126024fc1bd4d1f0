"""Whether corrupted images are harder: mean RMD under every corruption and severity.

    python -m benchmarks.studies.corruptions TRAIN_STORE TEST_TABLE OUT [IMAGES]

The store has the features that the built-in encoder gives for the training images, on which the
Gaussians are fitted. IMAGES of the test table (1,000 by default), evenly spaced, are scored as they
are and under each corruption at each severity. OUT receives a score file for each, such as
`difficulty score --corrupt` writes, which `difficulty figures OUT/*.parquet` draws.
"""

import io
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.typing import NDArray
from PIL import Image
from scipy.stats import spearmanr
from torch import Tensor

import difficulty_service as ds
from difficulty_service.features.store import open_store
from difficulty_service.images.corruptions import CORRUPTIONS, SEVERITIES, corrupt
from difficulty_service.scores.file import write_scores
from difficulty_service.scores.provenance import Provenance

IMAGES = 1000
HIGH = 0.94  # rank correlation of six means of which two neighbours have changed places


def fitted(folder: Path) -> ds.RelativeMahalanobis:
    """Gaussians of all features of a store."""
    store = open_store(folder)
    shards = [store.open_shard(shard) for shard in range(store.num_shards)]
    features = torch.cat([each.features() for each in shards])
    return ds.RelativeMahalanobis().fit(features.numpy(), torch.cat([p.labels for p in shards]))


def read_images(table: Path, images: int) -> tuple[list[str], NDArray[np.int64], Tensor]:
    """Ids, labels and pixels of some images of a table, evenly spaced."""
    rows = pq.read_table(table, columns=["index", "image", "label"])
    chosen = rows.take(np.linspace(0, len(rows) - 1, images).astype(int))
    opened = [
        np.asarray(Image.open(io.BytesIO(each)).convert("RGB"))
        for each in chosen["image"].to_pylist()
    ]
    pixels = torch.from_numpy(np.stack(opened)).permute(0, 3, 1, 2).contiguous()
    ids = [str(each) for each in chosen["index"].to_pylist()]
    return ids, chosen["label"].to_numpy(), pixels


def main(train: Path, test: Path, out: Path, images: int = IMAGES) -> None:
    """Writes the score files and prints the means and how they rise."""
    gaussians, encoder = fitted(train), ds.backbone("builtin")
    ids, labels, pixels = read_images(test, images)
    out.mkdir(parents=True, exist_ok=True)

    def score(shown: Tensor, corruption: str | None) -> float:
        scores = gaussians.score_samples(encoder.encode(shown), labels)
        table = pa.table(
            {
                "sample_id": ids,
                "label": pa.array(labels, pa.int32()),
                "label_name": pa.array([str(each) for each in labels]).dictionary_encode(),
                "rmd": scores,
            }
        )
        provenance = {
            "dataset": str(test),
            "dataset_options": {"id_column": "index"},
            "backbone": "builtin",
            "num_samples": len(ids),
            "fitted_on": {"dataset": str(train)},
        }
        if corruption is not None:
            provenance["corruption"] = corruption
        name = (corruption or "clean").replace(":", "-")
        write_scores(out / f"{name}.parquet", table, Provenance.of(provenance))
        return float(scores.mean())

    clean = score(pixels, None)
    means = {}
    for name in CORRUPTIONS:
        means[name] = [
            score(corrupt(pixels, name, severity, seed=0), f"{name}:{severity}")
            for severity in SEVERITIES
        ]
        print(name, *(f"{mean:.2f}" for mean in (clean, *means[name])), sep=" | ", flush=True)
    rising = sum(all(np.diff([clean, *each]) > 0) for each in means.values())
    correlations = [spearmanr([0, *SEVERITIES], [clean, *each])[0] for each in means.values()]
    above = sum(each[-1] > clean for each in means.values())
    print(
        f"{rising} of {len(means)} rise at every step, {above} are above clean images at severity "
        f"{SEVERITIES[-1]}; rank correlation of at least {HIGH} for "
        f"{sum(each >= HIGH for each in correlations)}, lowest {min(correlations):.2f}"
    )


if __name__ == "__main__":
    clean, corrupted, out = map(Path, sys.argv[1:4])
    main(clean, corrupted, out, *map(int, sys.argv[4:]))
