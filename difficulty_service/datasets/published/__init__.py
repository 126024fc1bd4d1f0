"""Datasets of research in the files in which their authors publish them; one file per dataset."""

from collections.abc import Callable

from difficulty_service.datasets.published.cifar import open_cifar
from difficulty_service.datasets.published.cifar_c import open_cifar_c
from difficulty_service.datasets.published.idx import open_idx
from difficulty_service.datasets.published.imagenet import open_imagenet_validation
from difficulty_service.datasets.published.svhn import open_svhn
from difficulty_service.datasets.published.tiny_imagenet import open_tiny_imagenet
from difficulty_service.datasets.sample import Dataset, DatasetOptions

PUBLISHED_DATASETS: dict[str, Callable[[str, DatasetOptions], Dataset]] = {
    "cifar": open_cifar,
    "cifar-c": open_cifar_c,
    "svhn": open_svhn,
    "idx": open_idx,
    "tiny-imagenet": open_tiny_imagenet,
    "imagenet-validation": open_imagenet_validation,
}
