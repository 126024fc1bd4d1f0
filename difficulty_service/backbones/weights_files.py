"""Finds weights files: in the package, in the cache of the hub, or by a download."""

from collections.abc import Sequence
from pathlib import Path

from difficulty_service.backbones.downloads import (
    DEFAULT_DOWNLOADS,
    Downloads,
    HubFile,
    fetch_files,
)
from difficulty_service.base.errors import BackboneError, MissingWeights, Setting

BUILTIN_WEIGHTS = Path(__file__).parent / "builtin" / "encoder.safetensors"
PHOTO_WEIGHTS = Path(__file__).parent / "builtin_photos" / "encoder.safetensors"
PHOTO_GRAPH = PHOTO_WEIGHTS.with_suffix(".onnx")
PHOTO_INT8_GRAPH = PHOTO_WEIGHTS.with_suffix(".int8.onnx")
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
    weights: str | None,
    backbone: str,
    repository: str,
    filenames: Sequence[str],
    downloads: Downloads = DEFAULT_DOWNLOADS,
) -> Path:
    """The weights file to read: a local one, or the hub's from its cache or a download.

    The repository is `owner/name`; of the names that the file may have, the preferred one is first.
    """
    if weights is None:
        cached = cached_weights(repository, filenames)
        return cached or download(backbone, repository, filenames, downloads)
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
    """Raises MissingWeights where a file is not cached and the hub does not give it.

    Nothing is downloaded.
    """
    if cached_weights(repository, filenames) is None:
        _ask_hub(backbone, repository, filenames)


def download(
    backbone: str, repository: str, filenames: Sequence[str], downloads: Downloads
) -> Path:
    """Downloads the first of `filenames` that the repository holds.

    Raises:
        MissingWeights: The hub cannot be reached or has none of them, or, with an OSError as its
            cause, the download broke off.
        WeightsTooLarge: The file is larger than the limit.
    """
    file = _ask_hub(backbone, repository, filenames)
    import httpx2  # after the question, which needs no client where the hub is not to be asked

    try:
        (path,) = fetch_files(backbone, [file], downloads)
    except (OSError, httpx2.HTTPError) as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise _missing(backbone, repository, filenames, reason) from ConnectionError(reason)
    return path


def _ask_hub(backbone: str, repository: str, filenames: Sequence[str]) -> HubFile:
    """The first of `filenames` that the repository holds, once the hub has answered."""
    from huggingface_hub import is_offline_mode

    if is_offline_mode():  # its client says so too, half a second later
        raise _missing(backbone, repository, filenames, "HF_HUB_OFFLINE is set")

    import httpx2
    from huggingface_hub import get_hf_file_metadata, hf_hub_url
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    reason = "the repository has no such file"
    for filename in filenames:
        try:
            # Without a network the download retries for half a minute; this request fails at once.
            found = get_hf_file_metadata(
                hf_hub_url(repository, filename), timeout=HUB_TIMEOUT_SECONDS
            )
        except RemoteEntryNotFoundError:
            continue
        except (OSError, httpx2.HTTPError, HfHubHTTPError) as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            break
        return HubFile(repository, filename, found.size)
    raise _missing(backbone, repository, filenames, reason)


def _missing(
    backbone: str, repository: str, filenames: Sequence[str], reason: str
) -> MissingWeights:
    from huggingface_hub import constants

    return MissingWeights(
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
