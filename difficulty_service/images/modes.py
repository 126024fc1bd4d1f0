"""How images are decoded and resized; `preparation` says what each mode does."""

from typing import Literal

Mode = Literal["fast", "exact", "gpu"]
