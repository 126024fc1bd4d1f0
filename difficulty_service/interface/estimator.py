"""`RelativeMahalanobis`: Gaussians that are fitted and scored with in the way of scikit-learn.

scikit-learn need not be installed. Where it is, it checks the input, so that errors are its own.
"""

import inspect
from typing import Any, Self

import numpy as np
import pyarrow as pa
import torch
from numpy.typing import NDArray
from torch import Tensor

from difficulty_service.base.errors import DatasetError, StatisticsError
from difficulty_service.features.array_columns import tensor_of
from difficulty_service.features.arrays import computable, finite_rows
from difficulty_service.gaussians.class_distances import class_distances
from difficulty_service.gaussians.fit_options import Shrinkage
from difficulty_service.gaussians.fitting import fit
from difficulty_service.gaussians.gaussian import covariances
from difficulty_service.gaussians.products import BLOCK_ROWS
from difficulty_service.interface.arrays import Matrix, holds_vectors, to_column, to_matrix
from difficulty_service.interface.options import read_options
from difficulty_service.interface.selection import column_array
from difficulty_service.interface.tables import Column, is_arrow
from difficulty_service.scorers.mahalanobis import relative_mahalanobis
from difficulty_service.settings.options import FittingOptions

UNKNOWN = -1
"""Class index of a label that was not fitted."""


class RelativeMahalanobis:
    """Scores and classifies samples by Gaussians, one per class, with one shared covariance.

    Args:
        shrinkage: `auto`, `none`, `ledoit-wolf`, `oas`, `leave-one-out`, or an intensity in [0, 1].
        matmul_dtype: `auto`, `float32` or `float64`: dtype of the matrix products.

    Attributes:
        classes_: The distinct labels, ascending. Shape (classes,).
        means_: Mean of each class. Shape (classes, dim).
        mean_: Mean of all samples. Shape (dim,).
        covariance_: Covariance within classes before shrinkage. Shape (dim, dim).
        gaussians_: The fitted Gaussians, whose `warnings` a reader of the scores should know.
        n_features_in_: Number of dimensions.
    """

    n_features_in_: int

    def __init__(self, shrinkage: Shrinkage = "auto", matmul_dtype: str = "auto") -> None:
        self.shrinkage = shrinkage
        self.matmul_dtype = matmul_dtype

    def fit(self, X: Matrix, y: Column) -> Self:  # noqa: N803 - as scikit-learn calls it
        """Fits the Gaussians.

        Args:
            X: Features, in any of the kinds that `score` takes. Shape (samples, dim).
            y: One integer or text per sample. Shape (samples,).

        Raises:
            ConfigError: An option is unknown or out of bounds.
            StatisticsError: The features allow no trustworthy Gaussian.
            ValueError: By scikit-learn: the input is no finite matrix, or labels are missing.
            DatasetError: The same, where scikit-learn is not installed.
        """
        options = read_options(FittingOptions, vars(self)).fit
        features, labels = self._checked(X, y)
        self.classes_, indices = np.unique(np.asarray(labels), return_inverse=True)
        gaussians = fit(features, torch.from_numpy(indices), len(self.classes_), options)
        self.gaussians_ = gaussians
        self.means_ = gaussians.class_means.numpy()
        self.mean_ = gaussians.mean.numpy()
        self.covariance_ = covariances(gaussians.moments)[0].numpy()
        self._scorer = relative_mahalanobis(gaussians)
        return self

    def score_samples(self, X: Matrix, y: Column | None = None) -> NDArray[np.float64]:  # noqa: N803
        """Difficulty (RMD) of samples, as if none of them had been part of the fit.

        Args:
            X: Features. Shape (samples, dim).
            y: Labels to score the samples against; NaN comes out for one that was not fitted. None
                to score each sample against the nearest class. Shape (samples,).

        Returns:
            Larger is harder, unitless, of either sign. Shape (samples,).
        """
        features, labels = self._checked(X, y, fitted=True)
        if labels is None:
            indices = self._nearest(features)
        else:
            places = np.searchsorted(self.classes_, labels).clip(max=len(self.classes_) - 1)
            known = self.classes_[places] == labels
            indices = torch.from_numpy(np.where(known, places, UNKNOWN))
        scores: NDArray[np.float64] = self._scorer.rmd(features, indices).numpy()
        return scores

    def predict(self, X: Matrix) -> NDArray[Any]:  # noqa: N803
        """The nearest class of each sample, among those with two samples. Shape (samples,)."""
        features, _ = self._checked(X, None, fitted=True)
        nearest: NDArray[Any] = self.classes_[self._nearest(features).numpy()]
        return nearest

    def predict_proba(self, X: Matrix) -> NDArray[np.float64]:  # noqa: N803
        """Probability of each class, if all were equally frequent.

        Returns:
            In the order of `classes_`; each row sums to 1. Shape (samples, classes).
        """
        features, _ = self._checked(X, None, fitted=True)
        gaussians = self.gaussians_
        class_points = gaussians.whitened_means
        single = gaussians.samples_per_class < 2  # noqa: PLR2004
        blocks = [
            class_distances(gaussians.whiten(rows), class_points)
            for rows in features.split(BLOCK_ROWS)
        ]
        distances = torch.cat(blocks).masked_fill_(single, torch.inf)
        probabilities: NDArray[np.float64] = (-distances / 2).softmax(dim=1).numpy()
        return probabilities

    def score(self, X: Matrix, y: Column, sample_weight: Column | None = None) -> float:  # noqa: N803
        """Share of the samples whose nearest class is their label, perhaps weighted."""
        right = self.predict(X) == np.asarray(y)
        return float(np.average(right, weights=sample_weight))

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002, FBT001, FBT002
        """The arguments of the constructor, by name."""
        return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

    def set_params(self, **params: object) -> Self:
        """Sets arguments of the constructor.

        Raises:
            ValueError: There is no such argument.
        """
        known = self.get_params()
        for name, value in params.items():
            if name not in known:
                raise ValueError(f"invalid parameter {name!r} for {self!r}; expected {list(known)}")
            setattr(self, name, value)
        return self

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items())
        return f"{type(self).__name__}({values})"

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "gaussians_")

    def __sklearn_tags__(self) -> Any:  # noqa: ANN401 - a type of an optional package
        from sklearn.utils import ClassifierTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
        )

    def _nearest(self, features: Tensor) -> Tensor:
        """Index of the nearest class of each sample. Shape (samples,)."""
        unlabelled = torch.full((len(features),), UNKNOWN)
        return self._scorer.distances(features, unlabelled).nearest_label

    def _checked(
        self,
        X: Matrix,  # noqa: N803
        y: Column | None,
        *,
        fitted: bool = False,
    ) -> tuple[Tensor, NDArray[Any] | None]:
        """Features and labels, in a form that can be computed with."""
        if isinstance(X, Tensor) or holds_vectors(X):
            X = computable(to_matrix(X)).numpy()  # noqa: N806
        if isinstance(y, Tensor):
            y = y.detach().cpu().numpy()
        elif is_arrow(y):
            y = _labels_of(y)
        try:
            import sklearn.utils.multiclass
            from sklearn.utils import validation
        except ImportError:
            return self._checked_alone(X, y, fitted=fitted)
        if fitted:
            validation.check_is_fitted(self)
        accepted = {
            "dtype": [np.float64, np.float32],
            "reset": not fitted,
            "ensure_min_samples": 1 if fitted else 2,
        }
        if y is None and fitted:
            return computable(tensor_of(validation.validate_data(self, X, **accepted))), None
        array, labels = validation.validate_data(self, X, y, **accepted)
        sklearn.utils.multiclass.check_classification_targets(labels)
        return computable(tensor_of(array)), labels

    def _checked_alone(
        self,
        X: Matrix,  # noqa: N803
        y: Column | None,
        *,
        fitted: bool,
    ) -> tuple[Tensor, NDArray[Any] | None]:
        """As `_checked`, without scikit-learn."""
        if fitted and not self.__sklearn_is_fitted__():
            raise StatisticsError(f"{self!r} is not fitted", "call fit first")
        features = computable(to_matrix(X))
        labels = None if y is None else np.asarray(y)
        if not finite_rows(features).all():
            raise DatasetError("the features hold NaN or infinity", parameter="X")
        if labels is not None and labels.shape != (len(features),):
            raise DatasetError(
                f"{len(features)} feature rows but labels of shape {labels.shape}", parameter="y"
            )
        if fitted and features.shape[1] != self.n_features_in_:
            raise DatasetError(
                f"X has {features.shape[1]} dimensions, but {self.n_features_in_} were fitted",
                parameter="X",
            )
        self.n_features_in_ = features.shape[1]
        return features, labels


def _labels_of(column: Column) -> NDArray[Any]:
    """The values of a column of another library, numbers as numbers. Shape (samples,)."""
    values = to_column(column, "y")
    return column_array(pa.chunked_array([values]) if isinstance(values, pa.Array) else values)
