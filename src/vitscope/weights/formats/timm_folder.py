"""timm's hub layout: config.json (architecture, model_args, pretrained_cfg) beside model.safetensors. In and out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file as save_safetensors
from torch import Tensor

from vitscope.core.config import shortened, updated
from vitscope.core.errors import ConfigError, UsageError, expected
from vitscope.core.files import write_json
from vitscope.data.config import NORMALISATIONS, PreprocessConfig, half_normalised
from vitscope.models.build import build_model
from vitscope.models.config import ModelConfig, ResNetConfig, SwinConfig, ViTConfig, pair
from vitscope.models.model import VisionModel
from vitscope.models.reconstruction import MaskedModel
from vitscope.weights.fit import fitted_preprocessing
from vitscope.weights.formats.damaged import numbers, refusing_damage
from vitscope.weights.formats.timm_arguments import POOLS, config_of
from vitscope.weights.formats.timm_spelling import Spelling, spelled

CONFIG, WEIGHTS = "config.json", "model.safetensors"
TORCH_FILES = (".pth", ".pt", ".bin")
CROPS = {"center": "centre", "squash": "squash"}
INTERPOLATIONS = ("bicubic", "bilinear", "nearest")
DEFAULT_CROP = 0.875
"""What timm takes where nothing is said."""
Answer = Callable[[Tensor], Tensor]
"""Images (B, C, H, W) -> logits, or the tokens of a model without a head."""


# --- in ---------------------------------------------------------------------------------------------------------


def described_by(
    described: dict[str, Any], folder: Path
) -> tuple[ModelConfig, PreprocessConfig | None, list[str] | None]:
    """What config.json says of the model, of its pictures and of its classes."""
    where = str(folder / CONFIG)
    with refusing_damage(where):
        return _described(described, where)


def _described(
    described: Mapping[str, Any], where: str
) -> tuple[ModelConfig, PreprocessConfig | None, list[str] | None]:
    pretrained = described.get("pretrained_cfg")
    if not isinstance(pretrained, Mapping):
        pretrained = described  # timm's first way: all in one
    given = described.get("model_args") or {}
    if not isinstance(given, Mapping):
        raise ConfigError(expected("model_args", "a mapping of arguments", shortened(given)), where=where)
    arguments = {**_implied(described, pretrained, where), **given}
    config = config_of(str(described["architecture"]), arguments, where=where)
    if isinstance(config, ResNetConfig) and pretrained.get("input_size"):
        config = updated(config, img_size=_one_or_two(_input_size(pretrained, where)[1:]))
    preprocessing = fitted_preprocessing(_preprocessing(pretrained, where), config)
    return config, preprocessing, _labels(described, pretrained, config.num_classes, where)


def _implied(described: Mapping[str, Any], pretrained: Mapping[str, Any], where: str) -> dict[str, Any]:
    """The arguments timm takes from pretrained_cfg where model_args do not give them."""
    implied: dict[str, Any] = {}
    classes = described.get("num_classes", pretrained.get("num_classes"))
    if isinstance(classes, int) and classes >= 0:
        implied["num_classes"] = classes
    if pretrained.get("global_pool"):
        implied["global_pool"] = pretrained["global_pool"]
    if pretrained.get("input_size"):
        in_chans, *size = _input_size(pretrained, where)
        implied["in_chans"] = in_chans
        if pretrained.get("fixed_input_size"):
            implied["img_size"] = _one_or_two(size)
    return implied


def _input_size(pretrained: Mapping[str, Any], where: str) -> list[int]:
    size = pretrained["input_size"]
    if not isinstance(size, list) or len(size) != 3 or not all(isinstance(side, int) and side > 0 for side in size):
        raise ConfigError(expected("input_size", "[channels, height, width]", shortened(size)), where=where)
    return size


def _one_or_two(size: list[int]) -> int | tuple[int, int]:
    return size[0] if size[0] == size[1] else (size[0], size[1])


def _preprocessing(pretrained: Mapping[str, Any], where: str) -> PreprocessConfig | None:
    """Just what timm's evaluation transform does, or a refusal."""
    if not pretrained.get("input_size"):
        return None
    in_chans, height, width = _input_size(pretrained, where)
    mode, share = pretrained.get("crop_mode") or "center", pretrained.get("crop_pct") or DEFAULT_CROP
    interpolation = pretrained.get("interpolation") or "bicubic"
    fix = "load the weights file by itself and give the model a preprocessing: load_model(file, config=...)"
    if mode not in tuple(CROPS):
        raise ConfigError(expected("crop_mode", f"one of {', '.join(CROPS)}", shortened(mode)), where=where, fix=fix)
    if interpolation not in INTERPOLATIONS:
        wanted = f"one of {', '.join(INTERPOLATIONS)}"
        raise ConfigError(expected("interpolation", wanted, shortened(interpolation)), where=where, fix=fix)
    mean, std = (
        numbers(pretrained.get(key) or NORMALISATIONS["imagenet"][place], key, None, where=where)
        for place, key in enumerate(("mean", "std"))
    )
    (share,) = numbers([share], "crop_pct", 1, where=where)
    if len(mean) != in_chans:  # timm says nothing of other channels than these
        mean, std = ((sum(values) / len(values),) * in_chans for values in (mean, std))
    return PreprocessConfig(
        img_size=(height, width),
        in_chans=in_chans,
        crop=CROPS[mode],  # pyright: ignore[reportArgumentType]
        crop_share=share,
        interpolation=interpolation,
        mean=mean,
        std=std,
    )


def _labels(
    described: Mapping[str, Any], pretrained: Mapping[str, Any], num_classes: int, where: str
) -> list[str] | None:
    """A list in index order, or a mapping from the index; a class without a name is called by its number."""
    places = (described, pretrained)
    labels = next((place[key] for place in places for key in ("label_names", "labels") if place.get(key)), None)
    if labels is None:
        return None
    if isinstance(labels, Mapping):
        labels = [labels.get(str(index), str(index)) for index in range(num_classes)]
    if not isinstance(labels, list) or not all(isinstance(label, str) for label in labels):
        raise ConfigError(expected("label_names", "a list of names", type(labels).__name__), where=where)
    return labels


# --- out --------------------------------------------------------------------------------------------------------


def save_folder(model: VisionModel, folder: Path) -> list[str]:
    """Write what `timm.create_model("local-dir:FOLDER", pretrained=True)` opens; what a person should know of it."""
    ours, remarks = _what_timm_holds(model)
    spelling = spelled(model.config)
    folder.mkdir(parents=True, exist_ok=True)
    preprocessing = ours.preprocessing
    if preprocessing is None:
        preprocessing = half_normalised(pair(ours.config.img_size), ours.config.in_chans)
        remarks.append("the model carries no preprocessing: mean and std 0.5 were written")
    elif preprocessing.resizer == "tensor":
        remarks.append(
            "pictures are resized as tensors here, as transformers does; timm's transform resizes by Pillow, by which "
            "single pixels differ by one level, and where the middle lies between two pixels may cut one pixel aside"
        )
    write_json(folder / CONFIG, _description(ours, spelling, preprocessing))
    _write(_tensors(ours), folder / WEIGHTS)
    if isinstance(ours.config, SwinConfig) and ours.config.num_classes == 0:
        remarks.append("timm takes a Swin without a head for an old file: open it by checkpoint_path=, not local-dir:")
    return [*remarks, *_eps_remark(ours, spelling)]


def save_file(model: VisionModel, path: Path) -> list[str]:
    """Write the weights alone, for `timm.create_model(NAME, checkpoint_path=PATH)`; what a person should know."""
    if path.suffix.lower() not in (".safetensors", *TORCH_FILES):
        wanted = ", ".join((".safetensors", *TORCH_FILES))
        raise UsageError(expected("file", f"a name that ends in {wanted}", path.name), where=str(path))
    ours, remarks = _what_timm_holds(model)
    spelling = spelled(model.config)
    path.parent.mkdir(parents=True, exist_ok=True)
    _write(_tensors(ours), path)
    words = "".join(f", {key}={value!r}" for key, value in spelling.arguments.items())
    opened = f"open it with timm.create_model('{spelling.architecture}', checkpoint_path='{path.name}'{words})"
    return [opened, *remarks, *_eps_remark(ours, spelling)]


def _what_timm_holds(model: VisionModel) -> tuple[VisionModel, list[str]]:
    """The model, or of a masked one its encoder; and what that leaves behind."""
    remarks = []
    if isinstance(model, MaskedModel):
        remarks.append("the encoder alone was written: timm has no place for what paints hidden patches")
        model = model.encoder
    if getattr(model.config, "position", None) == "sincos":
        remarks.append("the fixed sin-cos positions were written as a learned table")
    return model, remarks


def _tensors(model: VisionModel) -> dict[str, Tensor]:
    """By timm's names, which are ours; fixed positions too, with zeros for the prefix tokens."""
    tensors = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in model.state_dict().items()}
    if isinstance(model.config, ViTConfig) and model.config.position == "sincos":
        table: Any = model.sincos
        prefix = table.new_zeros(1, model.config.num_prefix_tokens, table.shape[2])
        tensors["pos_embed"] = torch.cat([prefix, table], dim=1).cpu()
    return tensors


def _write(tensors: dict[str, Tensor], path: Path) -> None:
    if path.suffix.lower() in TORCH_FILES:
        torch.save(tensors, path)
    else:
        path.unlink(missing_ok=True)
        path.touch()  # whoever may read a new file may read it; safetensors keeps its files to their owner
        mode = path.stat().st_mode
        save_safetensors(tensors, path, metadata={"format": "pt"})
        path.chmod(mode)


def _description(model: VisionModel, spelling: Spelling, preprocessing: PreprocessConfig) -> dict[str, Any]:
    """config.json."""
    config, heads = model.config, model.classifiers()
    crop = next(theirs for theirs, ours in CROPS.items() if ours == preprocessing.crop)
    pretrained: dict[str, Any] = {
        "custom_load": False,
        "input_size": [config.in_chans, *pair(config.img_size)],
        "fixed_input_size": not isinstance(config, ResNetConfig),
        "interpolation": preprocessing.interpolation,
        "crop_pct": preprocessing.crop_share,
        "crop_mode": crop,
        "mean": list(preprocessing.mean),
        "std": list(preprocessing.std),
        "num_classes": config.num_classes,
        "pool_size": None,
        # timm would change the filter, which has these channels already, to other channels than 3.
        "first_conv": _first_filter(config) if config.in_chans == 3 else None,
        "classifier": heads[0] if len(heads) == 1 else heads,
    }
    described = {
        "architecture": spelling.architecture,
        "num_classes": config.num_classes,
        "num_features": model.num_features,
        "global_pool": POOLS[config.pool] if isinstance(config, ViTConfig) else "avg",
    }
    if model.labels is not None and len(model.labels) == config.num_classes:
        described["label_names"] = list(model.labels)
    if spelling.arguments:
        described["model_args"] = spelling.arguments
    return {**described, "pretrained_cfg": pretrained}


def _first_filter(config: ModelConfig) -> str:
    return "conv1" if isinstance(config, ResNetConfig) else "patch_embed.proj"


@torch.no_grad()
def _eps_remark(model: VisionModel, spelling: Spelling) -> list[str]:
    """How far timm's answers will be from ours where it has no name for our LayerNorm's eps."""
    eps = getattr(model.config, "norm_eps", None)
    if eps is None or eps == spelling.norm_eps:
        return []
    other = with_eps(model, spelling.norm_eps)
    like = next(model.parameters())
    size = (2, model.config.in_chans, *pair(model.config.img_size))
    images = torch.randn(size, generator=torch.Generator().manual_seed(0)).to(like.device, like.dtype)
    was_training = model.training
    ours, theirs = model.eval()(images), other.eval()(images)
    model.train(was_training)
    difference, largest = (ours - theirs).abs().max().item(), ours.abs().max().item()
    return [
        f"timm has no name for LayerNorm's eps {eps:g} in this model and takes {spelling.norm_eps:g}: "
        f"outputs differ by up to {difference:.1e} (they reach {largest:.1e}; measured on two random pictures)"
    ]


def as_timm_computes(model: VisionModel) -> VisionModel:
    """The model with the eps its LayerNorms will have in timm, where that is another; its tensors are shared."""
    inner = model.encoder if isinstance(model, MaskedModel) else model
    eps = spelled(model.config).norm_eps
    return model if eps is None or inner.config.norm_eps == eps else with_eps(model, eps)


def with_eps(model: VisionModel, eps: float | None) -> VisionModel:
    """The same tensors behind LayerNorms of another eps."""
    config: Any = model.config
    if isinstance(model, MaskedModel):
        wanted = updated(config, encoder=updated(config.encoder, norm_eps=eps))
    else:
        wanted = updated(config, norm_eps=eps)
    with torch.device("meta"):
        other = build_model(wanted)
    other.load_state_dict(model.state_dict(), assign=True)
    other.reset_buffers()
    other.preprocessing, other.labels = model.preprocessing, model.labels
    return other


# --- timm itself ------------------------------------------------------------------------------------------------


def peer(folder: Path) -> Answer | None:
    """timm's model of a folder in its layout; None where timm is not installed."""
    try:
        import timm
        from timm.models import load_checkpoint
    except ImportError:
        return None
    file = next((folder / name for name in (WEIGHTS, "pytorch_model.bin") if (folder / name).is_file()), None)
    if file is None:
        return None
    model = timm.create_model(f"local-dir:{folder}", pretrained=False)
    load_checkpoint(model, str(file))
    return _answering(model)


def peer_of_file(path: Path, config: ModelConfig) -> Answer | None:
    """timm's model of a bare file, read by timm's own code; None where timm is not installed or has no such model.
    Raises what timm raises where it cannot read the file."""
    try:
        import timm
    except ImportError:
        return None
    try:
        spelling = spelled(config)
    except ConfigError:
        return None
    source = {
        "file": str(path),
        "source": "file",
        "custom_load": path.suffix == ".npz",
        "num_classes": config.num_classes,
        "first_conv": None,
    }
    return _answering(
        timm.create_model(spelling.architecture, pretrained=True, pretrained_cfg_overlay=source, **spelling.arguments)
    )


def _answering(model: Any) -> Answer:
    model.eval()

    @torch.no_grad()
    def answer(images: Tensor) -> Tensor:
        return model(images) if model.num_classes else model.forward_features(images)

    return answer
