"""Finds weights files: in the package, in the cache of the hub, or by a download."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from difficulty_service.base.errors import BackboneError, MissingWeights, Setting

T = TypeVar("T")

BUILTIN_WEIGHTS = Path(__file__).parent / "builtin" / "encoder.safetensors"
PHOTO_WEIGHTS = Path(__file__).parent / "builtin_photos" / "encoder.safetensors"
PHOTO_GRAPH = PHOTO_WEIGHTS.with_suffix(".onnx")
PACKAGED_WEIGHTS = {"builtin": BUILTIN_WEIGHTS, "builtin-photos": PHOTO_WEIGHTS}
"""The weights that are in the package, by the names of the backbones."""

CLIP_FILENAMES = ("open_clip_model.safetensors", "open_clip_pytorch_model.bin")
TIMM_FILENAMES = ("model.safetensors", "pytorch_model.bin")
HUB_TIMEOUT_SECONDS = 10

GET_THEM: tuple[str | Setting, ...] = (
    "run this once where there is a network and copy the cache folder, give a file of these "
    "weights as ",
    Setting("weights"),
    ", or ",
)
"""What to do where weights are missing, before what can be done without them."""


def locate_weights(
    weights: str | None, backbone: str, repository: str, filenames: Sequence[str]
) -> Path:
    """The weights file to read: a local one, or the hub's from its cache or a download.

    The repository is `owner/name`; of the names that the file may have, the preferred one is first.
    """
    if weights is None:
        return cached_weights(repository, filenames) or download(backbone, repository, filenames)
    path = Path(weights)
    if not path.is_file():
        raise BackboneError(
            f"there is no file {weights}",
            "set ",
            Setting("weights"),
            f" to the weights of {backbone}",
            parameter="weights",
        )
    return path


def cached_weights(repository: str, filenames: Sequence[str]) -> Path | None:
    """Path of the file in the hub's cache, without network access; None if it is not cached."""
    from huggingface_hub import try_to_load_from_cache

    for filename in filenames:
        path = try_to_load_from_cache(repository, filename)
        if isinstance(path, str):
            return Path(path)
    return None


def require_obtainable(backbone: str, repository: str, filenames: Sequence[str]) -> None:
    """Raises the error of `download` where a file is not cached and the hub does not give it.

    Nothing is downloaded.
    """
    if cached_weights(repository, filenames) is None:
        _from_hub(backbone, repository, filenames, str)


def download(backbone: str, repository: str, filenames: Sequence[str]) -> Path:
    """Downloads the first of `filenames` that the repository holds."""
    from huggingface_hub import hf_hub_download

    def fetch(filename: str) -> Path:
        return Path(hf_hub_download(repository, filename))

    return _from_hub(backbone, repository, filenames, fetch)


def _from_hub(
    backbone: str, repository: str, filenames: Sequence[str], use: Callable[[str], T]
) -> T:
    """Uses the first of `filenames` that the repository holds, once the hub has answered."""
    import httpx2
    from huggingface_hub import constants, get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    reason = "the repository has no such file"
    for filename in filenames:
        try:
            # Without a network the download retries for half a minute; this request fails at once.
            get_hf_file_metadata(hf_hub_url(repository, filename), timeout=HUB_TIMEOUT_SECONDS)
            return use(filename)
        except RemoteEntryNotFoundError:
            continue
        except (OSError, httpx2.HTTPError, HfHubHTTPError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            break
    raise MissingWeights(
        f"the weights of {backbone} are missing: file {' or '.join(filenames)} of repository "
        f"{repository} is not in the cache folder {constants.HF_HUB_CACHE} and cannot be "
        f"downloaded ({reason})",
        *GET_THEM,
        "do with a network that ships with the package: ",
        Setting("backbone", "builtin-photos"),
        " for photographs, ",
        Setting("backbone", "builtin"),
        " for images of few pixels",
        parameter="weights",
    )
