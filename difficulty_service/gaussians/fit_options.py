"""Options of a fit: shrinkage, dtype of the matrix products, augmentation runs."""

from dataclasses import dataclass
from typing import Literal

ShrinkageRule = Literal["auto", "none", "ledoit-wolf", "oas", "leave-one-out"]
Shrinkage = ShrinkageRule | float


@dataclass(frozen=True)
class FitOptions:
    """Options of a fit. Fitted Gaussians keep the options they were fitted with.

    Attributes:
        shrinkage: Shrinkage rule, or an intensity in [0, 1]. `auto` is `leave-one-out` where there
            are few samples or the covariance is ill-conditioned, otherwise `none`; the others are
            `ledoit-wolf` and `oas`.
        matmul_dtype: dtype of the matrix products: `float32`, `float64`, or `auto` to choose by
            the condition number of the features. Fitted Gaussians hold the dtype that was chosen.
        runs: Number of feature rows per sample, one for each augmentation run.
    """

    shrinkage: Shrinkage = "auto"
    matmul_dtype: str = "auto"
    runs: int = 1

    def takes_ridge(self, *, few: bool) -> bool:
        """Whether leave-one-out chooses a ridge; `few` says that the covariance needs one."""
        return self.shrinkage == "leave-one-out" or (few and self.shrinkage == "auto")

    @property
    def needs_fourth_powers(self) -> bool:
        """Whether the intensity follows from a second pass over the features."""
        return self.shrinkage == "ledoit-wolf"
