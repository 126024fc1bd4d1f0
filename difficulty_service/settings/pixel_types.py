"""Types of the options that say what is seen of an image; a recipe of the trainer has them, too."""

from typing import Annotated

from pydantic import AfterValidator, WithJsonSchema

from difficulty_service.images.pixel_range import PixelRange
from difficulty_service.images.pixels import known_page, parse_bands

Range = Annotated[
    str,
    AfterValidator(lambda text: str(PixelRange.parse(text))),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9eE.+-]{1,30}:[0-9eE.+-]{1,30}$"}),
]
Bands = Annotated[
    str,
    AfterValidator(lambda text: ",".join(map(str, parse_bands(text)))),
    WithJsonSchema({"type": "string", "pattern": r"^\d{1,4}(, ?\d{1,4}, ?\d{1,4})?$"}),
]
Page = Annotated[
    str,
    AfterValidator(known_page),
    WithJsonSchema({"type": "string", "pattern": r"^(first|middle|last|[1-9]\d{0,3})$"}),
]
