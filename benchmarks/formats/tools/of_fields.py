"""Images of other fields, as tifffile, rasterio and pydicom write them, with their values beside.

    python -m benchmarks.formats.tools.of_fields FOLDER SCRIPT

`SCRIPT` makes PNG of DICOM, as the page on other fields has it; it runs in `FOLDER`.
"""

import json
import runpy
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pydicom
import rasterio
import tifffile
from numpy.typing import NDArray
from pydicom.dataset import FileDataset, FileMetaDataset
from pydicom.uid import CTImageStorage, ExplicitVRLittleEndian, generate_uid
from rasterio.enums import Resampling

Values = NDArray[Any]

SIZE = (48, 64)
"""Height and width."""


@dataclass(frozen=True)
class FieldImage:
    """An image of a program.

    Attributes:
        image: Its path; a file of that name in `.npy` has the values. Shape (height, width, bands).
        low: Value that is to be black.
        high: Value that is to be white.
        bands: Those that are shown, counted from 1; none for the first ones.
        inverted: Whether 0 is white.
        missing: Value that stands for none; None where there is none.
    """

    program: str
    version: str
    kind: str
    image: str
    low: float = 100
    high: float = 3000
    bands: tuple[int, ...] = ()
    page: str = ""
    inverted: bool = False
    missing: float | None = None


def _values(bands: int, dtype: str, low: int = 0, high: int = 4096) -> Values:
    return np.random.default_rng(bands).integers(low, high, (*SIZE, bands)).astype(dtype)


def _by_tifffile(folder: Path) -> Iterator[FieldImage]:
    def written(kind: str, values: Values, stored: Values, **options: Any) -> FieldImage:  # noqa: ANN401
        own = {name: options.pop(name) for name in ("bands", "page", "inverted") if name in options}
        path = folder / f"tifffile {kind}.tif"
        tifffile.imwrite(path, stored, **options)
        np.save(path.with_suffix(".npy"), values)
        return FieldImage("tifffile", version("tifffile"), kind, path.name, **own)

    grey, colours, five = (_values(bands, "uint16") for bands in (1, 3, 5))
    floats = grey.astype(np.float32) + np.float32(0.25)
    plain = grey[..., 0]
    yield written("12 bits", grey, plain)
    for compression in ("lzw", "zlib", "zstd", "packbits"):
        yield written(f"12 bits, {compression}", grey, plain, compression=compression)
    yield written("12 bits, predictor", grey, plain, compression="zlib", predictor=True)
    yield written("12 bits, big-endian", grey, plain, byteorder=">")
    yield written("12 bits, BigTIFF", grey, plain, bigtiff=True)
    yield written("12 bits, tiles", grey, plain, tile=(16, 16))
    yield written("0 is white", grey, plain, photometric="miniswhite", inverted=True)
    yield written("32-bit integers", grey, plain.astype(np.int32))
    yield written("floats", floats, floats[..., 0])
    yield written("floats, predictor", floats, floats[..., 0], compression="zlib", predictor=True)
    yield written("16-bit colours", colours, colours, photometric="rgb")
    separate: dict[str, Any] = {"photometric": "rgb", "planarconfig": "separate"}
    yield written("16-bit colours in planes", colours, np.moveaxis(colours, -1, 0), **separate)
    many: dict[str, Any] = {
        "photometric": "minisblack",
        "planarconfig": "contig",
        "bands": (5, 3, 1),
    }
    yield written("five bands", five, five, **many)
    yield written("five bands, tiles", five, five, tile=(16, 16), compression="zlib", **many)
    stack = np.moveaxis(five, -1, 0)
    middle = five[..., 2:3]
    pages: dict[str, Any] = {"photometric": "minisblack", "page": "middle"}
    yield written("stack, middle page", middle, stack, **pages)
    yield written("stack of ImageJ, middle page", middle, stack, imagej=True, **pages)
    yield written("stack of OME, middle page", middle, stack, ome=True, **pages)


def _by_rasterio(folder: Path) -> Iterator[FieldImage]:
    def written(kind: str, values: Values, **options: Any) -> FieldImage:  # noqa: ANN401
        own = {name: options.pop(name) for name in ("bands", "low", "high") if name in options}
        path = folder / f"rasterio {kind}.tif"
        smaller, driver = options.pop("smaller", False), options.pop("driver", "GTiff")
        shape = {"height": SIZE[0], "width": SIZE[1], "count": values.shape[2]}
        with rasterio.open(path, "w", driver, dtype=values.dtype, **shape, **options) as file:
            file.write(np.moveaxis(values, -1, 0))
            if smaller:
                file.build_overviews([2], Resampling.nearest)
        np.save(path.with_suffix(".npy"), values)
        missing = options.get("nodata")
        return FieldImage("rasterio", version("rasterio"), kind, path.name, missing=missing, **own)

    four, many, grey = (_values(bands, "uint16") for bands in (4, 13, 1))
    packed: dict[str, Any] = {
        "tiled": True,
        "blockxsize": 16,
        "blockysize": 16,
        "compress": "deflate",
    }
    shown: dict[str, Any] = {"bands": (4, 3, 2)}
    yield written("four bands", four, **shown)
    yield written("four bands, tiles", four, predictor=2, **packed, **shown)
    yield written("13 bands by pixel", many, interleave="pixel", compress="lzw", **shown)
    yield written("13 bands by band", many, interleave="band", **shown)
    yield written("with smaller copies", grey, smaller=True)
    yield written("cloud-optimised", four, driver="COG", **shown)
    floats = grey.astype(np.float32)
    floats[:9, :7] = -9999
    yield written("floats with nodata", floats, nodata=-9999, compress="deflate", predictor=3)
    heights = _values(1, "int16", -500, 3000)
    heights[:9, :7] = -32768
    yield written("heights with nodata", heights, nodata=-32768, low=-500)
    zeros = grey.copy()
    zeros[:9, :7] = 0
    yield written("0 as nodata", zeros, nodata=0)
    yield written("eight bits", _values(3, "uint8", 0, 256), low=0, high=255)


def _by_pydicom(folder: Path, script: Path) -> Iterator[FieldImage]:
    """The PNG that the script makes of DICOM."""
    kinds: dict[str, Callable[[FileDataset], None]] = {
        "radiograph": lambda _: None,
        "radiograph, 0 is white": _invert,
        "CT": _of_ct,
    }
    stored = _values(1, "uint16")[..., 0]
    (folder / "dicom").mkdir()
    for kind, change in kinds.items():
        meta = FileMetaDataset()
        meta.MediaStorageSOPClassUID, meta.MediaStorageSOPInstanceUID = (
            CTImageStorage,
            generate_uid(),
        )
        meta.TransferSyntaxUID = ExplicitVRLittleEndian
        scan = FileDataset(None, {}, file_meta=meta, preamble=bytes(128))
        scan.SOPClassUID, scan.SOPInstanceUID = CTImageStorage, meta.MediaStorageSOPInstanceUID
        scan.Modality, scan.PhotometricInterpretation = "DX", "MONOCHROME2"
        scan.Rows, scan.Columns = SIZE
        scan.SamplesPerPixel, scan.PixelRepresentation = 1, 0
        scan.BitsAllocated, scan.BitsStored, scan.HighBit = 16, 12, 11
        scan.PixelData = stored.tobytes()
        change(scan)
        scan.save_as(folder / "dicom" / f"{kind}.dcm", enforce_file_format=True)
    runpy.run_path(str(script))
    for kind in kinds:
        values = 4095 - stored if "white" in kind else stored
        np.save(folder / "xrays" / f"{kind}.npy", values[..., None])
        yield FieldImage("pydicom", pydicom.__version__, kind, f"xrays/{kind}.png")


def _invert(scan: FileDataset) -> None:
    scan.PhotometricInterpretation = "MONOCHROME1"


def _of_ct(scan: FileDataset) -> None:
    scan.Modality, scan.RescaleSlope, scan.RescaleIntercept = "CT", 1, -1024


def main() -> None:
    """Writes all."""
    import os

    folder, script = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    os.chdir(folder)
    written = [*_by_tifffile(folder), *_by_rasterio(folder), *_by_pydicom(folder, script)]
    (folder / "written.json").write_text(json.dumps([asdict(each) for each in written], indent=1))


if __name__ == "__main__":
    main()
