"""The space that a CLIP's images share with words: which features lead there, and by which map."""

from torch import nn

from difficulty_service.backbones import find_clip
from difficulty_service.backbones.backbone import BackboneOptions
from difficulty_service.backbones.clip import find_configs, load_tower, projection_of
from difficulty_service.backbones.clip_text import locate_clip
from difficulty_service.base.errors import BackboneError, Setting

PROJECTED = "projected"
"""The kind of features that are in that space as they are."""


def leads_to_words(backbone: str | None, features: str | None) -> bool:
    """Whether features of a backbone, of a kind, lead to a space that words have a place in.

    So do all features of a CLIP with a text tower that needs no other package, except pooled ones
    before a projection that is not linear.
    """
    if backbone is None or features is None:
        return False
    try:
        clip = find_clip(backbone)
        if clip is None:
            return False
        model, _ = find_configs(clip.keywords["architecture"], clip.keywords["tag"])
    except BackboneError:  # of a version of open_clip that knows more of them
        return False
    vision = model["vision_cfg"]
    is_linear = vision.get("timm_proj") != "mlp" and not str(vision.get("timm_pool")).endswith(
        "_attn"
    )
    return "hf_model_name" not in model["text_cfg"] and (features == PROJECTED or is_linear)


def load_projection(backbone: str, options: BackboneOptions) -> nn.Module:
    """The map of features, of the kind that the options name, into the space shared with words.

    From shape (samples, feature_dim) to (samples, dim), in float32 on the CPU.

    Raises:
        BackboneError: The backbone is no CLIP, its weights are missing or do not fit, or no linear
            map leads there.
    """
    if options.features == PROJECTED:
        return nn.Identity()
    clip = find_clip(backbone)
    projection = None
    if clip is not None:
        model, pretraining = find_configs(clip.keywords["architecture"], clip.keywords["tag"])
        path = locate_clip(backbone, options, pretraining["hf_hub"])
        projection = projection_of(load_tower(backbone, path, model, pretraining))
    if projection is None:
        raise BackboneError(
            f"no linear map leads from pooled features of {backbone} to words",
            "use ",
            Setting("features", PROJECTED),
            parameter="features",
        )
    return projection.eval().requires_grad_(requires_grad=False)
