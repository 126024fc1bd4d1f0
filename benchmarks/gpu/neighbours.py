"""Distances to the nearest neighbours by faiss, on the device."""

from benchmarks.gpu.fitting import make_features
from benchmarks.gpu.parts import LeftOut, Row, Rows, Setting
from difficulty_service.base.errors import MissingPackage
from difficulty_service.scorers.faiss_package import count_gpus, load_faiss
from difficulty_service.scorers.knn import NUM_NEIGHBOURS, knn_distance

SIZES = (50_000, 200_000)
DIM, QUICK_SIZE, QUICK_DIM = 768, 500, 8


def measure_neighbours(setting: Setting) -> Rows:
    """Seconds of the score `knn` of every sample among all others; the first size warms up."""
    try:
        faiss = load_faiss()
    except MissingPackage:
        raise LeftOut("faiss is not installed") from None
    if setting.on_gpu and not count_gpus(faiss):
        raise LeftOut("this build of faiss cannot use GPUs")
    sizes, dim = ((QUICK_SIZE,), QUICK_DIM) if setting.quick else (SIZES, DIM)
    for size in sizes:
        features = make_features(setting.device, size, dim, classes=10)[0].cpu()

        def search() -> object:
            return knn_distance(features, features, NUM_NEIGHBOURS, exclude_self=True)  # noqa: B023

        setting.free_memory()  # what torch keeps for itself, faiss could not have
        yield Row(f"knn, {size:,} x {dim}", setting.time(search), "s", f"{NUM_NEIGHBOURS} of all")
