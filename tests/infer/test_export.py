"""`export_model`: what is in the file, what is refused, and that nothing is left of a file that says something else."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

import vitscope
from vitscope.core.errors import DataError, UsageError, VitscopeError
from vitscope.data.config import PreprocessConfig
from vitscope.data.preprocess import normalise
from vitscope.infer.export import compare, network, onnx_file, pt2_file
from vitscope.infer.export.compare import Comparison, own_pictures, photographs
from vitscope.infer.export.metadata import KEYS
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.model import VisionModel
from vitscope.models.variants import model_config
from vitscope.models.vit import ViT

TINY: dict[str, Any] = {
    "img_size": 16,
    "patch_size": 8,
    "embed_dim": 16,
    "depth": 1,
    "num_heads": 2,
    "num_classes": 3,
}
SEEN = PreprocessConfig(img_size=(16, 16), mean=(0.4, 0.5, 0.6), std=(0.2, 0.3, 0.25))


def tiny(**settings: Any) -> Any:
    """Large weights, so that what is wrong shows."""
    torch.manual_seed(0)
    model = build_model(ViTConfig(**{**TINY, **settings})).eval()
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(0.1 * torch.randn_like(weight))
    model.preprocessing = SEEN if model.config.in_chans == 3 and model.config.img_size == 16 else None
    model.labels = ["bee", "cat", "elk"]
    return model


def asked(file: Path, images: Tensor) -> Tensor:
    if file.suffix == ".pt2":
        return torch.export.load(file).module()(images)
    session = onnxruntime.InferenceSession(file, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, {"images": images.numpy()})[0])


def pictures(model: VisionModel, count: int = 3) -> Tensor:
    size = model.config.img_size
    shape = (size, size) if isinstance(size, int) else size
    return torch.randn(count, model.config.in_chans, *shape, generator=torch.Generator().manual_seed(1))


@torch.no_grad()
def assert_same(file: Path, model: VisionModel, limit: float = 1e-4) -> None:
    for count in (1, 3):
        images = pictures(model, count)
        wanted, found = model(images), asked(file, images)
        assert (found - wanted).abs().max() <= limit * wanted.abs().max()


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The tiny model in both formats, as it is."""
    folder = tmp_path_factory.mktemp("plain")
    for name in ("model.onnx", "model.pt2"):
        vitscope.export_model(tiny(), folder / name)
    return folder


# --- any shape of network -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "settings",
    [
        {"depth": 2, "num_heads": (3, 1), "head_dim": 8, "mlp_dim": (40, 7)},
        {"position": "rope", "qk_norm": True, "mlp": "swiglu", "pool": "attention", "num_registers": 2},
        {"position": "relative", "norm_order": "post", "pool": "mean", "class_token": False, "img_size": (16, 24)},
        {"position": "sincos", "in_chans": 5, "layer_scale": 0.1, "act": "quick_gelu"},
    ],
    ids=["block by block", "rope", "relative", "five channels"],
)
def test_options_of_a_vit(settings: dict[str, Any], tmp_path: Path) -> None:
    model = tiny(**settings)
    vitscope.export_model(model, tmp_path / "model.onnx")
    assert_same(tmp_path / "model.onnx", model)
    vitscope.export_model(model, tmp_path / "model.pt2")
    assert_same(tmp_path / "model.pt2", model)


@torch.no_grad()
def test_layers_that_were_cut_out_by_hand(tmp_path: Path) -> None:
    """Nothing asks the config how wide a block is."""
    model = tiny(depth=2)
    first, second = model.blocks
    kept = torch.tensor([0, 3, 4, 9, 11])
    for old, axis in (("fc1", 0), ("fc2", 1)):
        weight = getattr(first.mlp, old).weight.index_select(axis, kept)
        layer = nn.Linear(weight.shape[1], weight.shape[0])
        layer.weight.copy_(weight)
        setattr(first.mlp, old, layer)
    second.attn.qkv = nn.Linear(16, 3 * 8)
    second.attn.proj = nn.Linear(8, 16)
    second.attn.num_heads = 1
    for name in ("model.onnx", "model.pt2"):
        vitscope.export_model(model, tmp_path / name)
        assert_same(tmp_path / name, model)


def test_another_size_and_a_folder(tmp_path: Path) -> None:
    vitscope.save_model(tiny(), tmp_path / "model")
    report = vitscope.export_model(tmp_path / "model", tmp_path / "large.pt2", img_size=(24, 32))
    assert report.inputs == {"images": "float32 (batch, 3, 24, 32)"}
    assert report.outputs == {"logits": "float32 (batch, 3)"}
    assert_same(tmp_path / "large.pt2", vitscope.load_model(tmp_path / "model", img_size=(24, 32)))
    model = tiny()
    vitscope.export_model(model, tmp_path / "again.pt2", img_size=(24, 32))
    assert model.config.img_size == 16
    assert_same(tmp_path / "again.pt2", vitscope.load_model(tmp_path / "model", img_size=(24, 32)))
    told = dict.fromkeys(KEYS, "")
    torch.export.load(tmp_path / "again.pt2", extra_files=told)
    assert json.loads(told["vitscope.preprocessing"])["img_size"] == [24, 32]
    assert json.loads(told["vitscope.preprocessing"])["mean"] == [0.4, 0.5, 0.6]


def test_a_model_without_a_head_answers_with_features(tmp_path: Path) -> None:
    model = tiny()
    model.reset_classifier(0)
    report = vitscope.export_model(model, tmp_path / "model.pt2")
    assert report.outputs == {"features": "float32 (batch, 16)"}
    assert report.comparison.same_top1 is None


# --- what goes in, and in which type --------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["model.onnx", "model.pt2"])
def test_pixels_are_normalised_in_the_file(name: str, tmp_path: Path) -> None:
    model = tiny()
    report = vitscope.export_model(model, tmp_path / name, pixels=True)
    assert report.inputs == {"images": "uint8 (batch, 3, 16, 16)"}
    pixels = torch.stack(photographs(SEEN))
    with torch.no_grad():
        wanted = model(normalise(pixels, SEEN))
    assert (asked(tmp_path / name, pixels) - wanted).abs().max() <= 1e-5 * wanted.abs().max()


@pytest.mark.parametrize(
    ("name", "dtype", "limit"),
    [
        ("model.onnx", torch.float16, 1e-2),
        ("model.pt2", torch.float16, 1e-2),
        ("model.pt2", torch.bfloat16, 5e-2),
    ],
    ids=["onnx fp16", "pt2 fp16", "pt2 bf16"],
)
def test_half_the_bits(name: str, dtype: torch.dtype, limit: float, tmp_path: Path) -> None:
    model = tiny(embed_dim=256)
    report = vitscope.export_model(model, tmp_path / name, dtype=dtype)
    assert report.bytes < 3 * sum(weight.numel() for weight in model.parameters())
    assert report.inputs == {"images": "float32 (batch, 3, 16, 16)"}
    assert report.outputs == {"logits": "float32 (batch, 3)"}
    assert 1e-6 < report.comparison.difference < report.comparison.allowed == limit
    assert_same(tmp_path / name, model, limit)
    assert next(model.parameters()).dtype == torch.float32


def test_the_model_stays_as_it_was(tmp_path: Path) -> None:
    model = tiny().to(torch.bfloat16).train()
    before = {name: (tensor.data_ptr(), tensor.clone()) for name, tensor in model.state_dict().items()}
    vitscope.export_model(model, tmp_path / "model.pt2", dtype=torch.float16)
    assert model.training
    assert all(weight.requires_grad for weight in model.parameters())
    for name, tensor in model.state_dict().items():
        assert tensor.data_ptr() == before[name][0], name
        assert torch.equal(tensor, before[name][1]), name


# --- what the file says of itself -----------------------------------------------------------------------------------


def test_metadata_is_the_same_in_both_formats_and_names_no_place(plain: Path) -> None:
    told = dict.fromkeys(KEYS, "")
    torch.export.load(plain / "model.pt2", extra_files=told)
    written = onnx.load(plain / "model.onnx")
    assert {one.key: one.value for one in written.metadata_props} == told
    assert json.loads(told["vitscope.labels"]) == ["bee", "cat", "elk"]
    assert json.loads(told["vitscope.model"])["config"]["embed_dim"] == 16
    about = json.loads(told["vitscope.file"])
    assert (about["format"], about["input"], about["output"], about["dtype"]) == (1, "prepared", "logits", "fp32")
    assert "blocks.0.mlp.fc1.bias" in {tensor.name for tensor in written.graph.initializer}
    for name in ("model.onnx", "model.pt2"):
        content = (plain / name).read_bytes()
        assert str(Path(vitscope.__file__).parent).encode() not in content
        assert b"site-packages" not in content


def test_classes_nobody_named_have_no_names(tmp_path: Path) -> None:
    model = tiny()
    model.labels = None
    vitscope.export_model(model, tmp_path / "model.pt2")
    told = dict.fromkeys(KEYS, "")
    torch.export.load(tmp_path / "model.pt2", extra_files=told)
    assert json.loads(told["vitscope.labels"]) is None


def test_a_pt2_needs_no_vitscope(plain: Path) -> None:
    program = (
        "import sys; sys.modules['vitscope'] = None\n"
        "import torch; images = torch.ones(3, 3, 16, 16)\n"
        "print(torch.export.load('model.pt2').module()(images).flatten().tolist())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=plain, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        wanted = tiny()(torch.ones(3, 3, 16, 16)).flatten()
    torch.testing.assert_close(torch.tensor(json.loads(done.stdout)), wanted)


# --- a file that says something else --------------------------------------------------------------------------------


def write_another(monkeypatch: pytest.MonkeyPatch, writer: Any, other: VisionModel) -> None:
    """Let the exporter make a mistake: `other` goes into the file."""
    program = network.trace(network.frozen(other), (3, 16, 16), pixels=False)
    write = writer.write
    monkeypatch.setattr(writer, "write", lambda _, *args, **settings: write(program, *args, **settings))


@pytest.mark.parametrize(("name", "writer"), [("model.onnx", onnx_file), ("model.pt2", pt2_file)], ids=["onnx", "pt2"])
def test_a_mismatch_leaves_nothing(name: str, writer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tiny()
    with torch.no_grad():
        other.blocks[0].attn.qkv.bias[-1] += 0.05
    write_another(monkeypatch, writer, other)
    if writer is pt2_file:
        with pytest.raises(VitscopeError, match="does not say what the model says"):
            vitscope.export_model(tiny(), tmp_path / "new" / "folder" / name)
        assert list(tmp_path.iterdir()) == []
    (tmp_path / name).write_bytes(b"an older file")
    with pytest.raises(VitscopeError, match="does not say what the model says"):
        vitscope.export_model(tiny(), tmp_path / name, overwrite=True)
    assert [path.read_bytes() for path in tmp_path.iterdir()] == [b"an older file"]


def test_other_answers_of_another_shape_and_lost_metadata(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        write_another(patch, pt2_file, tiny(num_classes=4))
        with pytest.raises(VitscopeError, match=r"answers with \(1, 4\) where the model answers with \(1, 3\)"):
            vitscope.export_model(tiny(), tmp_path / "model.pt2")
    write = pt2_file.write
    monkeypatch.setattr(pt2_file, "write", lambda program, path, told, **how: write(program, path, {}, **how))
    with pytest.raises(VitscopeError, match=r"did not keep metadata vitscope\.file"):
        vitscope.export_model(tiny(), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_opened_or_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(onnx_file, "write", lambda program, path, *_, **__: path.write_bytes(b"torn"))
        with pytest.raises(VitscopeError, match="cannot be opened"):
            vitscope.export_model(tiny(), tmp_path / "model.onnx")

    def full(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pt2_file, "write", full)
    with pytest.raises(VitscopeError, match="No space left on device"):
        vitscope.export_model(tiny(), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []


def test_a_sidecar_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """torch's exporter writes weights beside the file where it thinks them too large, whatever it is told."""
    save = torch.onnx.ONNXProgram.save
    monkeypatch.setattr(torch.onnx.ONNXProgram, "save", lambda self, path, **_: save(self, path, external_data=True))
    with pytest.raises(VitscopeError, match="more than one file"):
        vitscope.export_model(tiny(), tmp_path / "model.onnx")
    assert list(tmp_path.iterdir()) == []


def test_answers_that_are_no_numbers(tmp_path: Path) -> None:
    model = tiny()
    with torch.no_grad():
        model.head.bias[0] = torch.nan
    with pytest.raises(VitscopeError, match="not finite"):
        vitscope.export_model(model, tmp_path / "model.pt2")
    model = tiny()
    with torch.no_grad():
        model.head.weight.mul_(1e6)
    with pytest.raises(VitscopeError, match="does not say") as caught:
        vitscope.export_model(model, tmp_path / "model.pt2", dtype=torch.float16)
    assert caught.value.fix == "take --dtype fp32"
    assert list(tmp_path.iterdir()) == []


# --- the comparison itself ------------------------------------------------------------------------------------------


def compared(found: Tensor, wanted: Tensor) -> Comparison:
    pixels = [torch.zeros(3, 2, 2, dtype=torch.uint8)] * 10
    return compare.compare(
        lambda images: wanted[: len(images)],
        lambda images: found[: len(images)],
        pixels,
        Tensor.float,
        takes_pixels=False,
        allowed=1e-4,
        top1=True,
    )


def test_another_first_class_fails_though_numbers_are_near() -> None:
    wanted = torch.tensor([[10.0, 9.9995]]).repeat(7, 1)
    found = torch.tensor([[9.9995, 9.9999]]).repeat(7, 1)
    told = compared(found, wanted)
    assert told.difference < 1e-4
    assert (told.pictures, told.same_top1) == (10, 0)
    with pytest.raises(VitscopeError, match="another first class for 10 of 10"):
        compare.refuse_mismatch(told, exact=True, runtime="x")
    compare.refuse_mismatch(told, exact=False, runtime="x")


def test_a_tie_may_fall_either_way_and_nan_is_no_answer() -> None:
    wanted = torch.tensor([[10.0, 10.0, 1.0]]).repeat(7, 1)
    found = wanted + torch.tensor([0.0, 1e-5, 0.0])
    assert compared(found, wanted).same_top1 == 10
    broken = wanted.clone()
    broken[6, 2] = torch.nan
    with pytest.raises(VitscopeError, match="differ by inf"):
        compare.refuse_mismatch(compared(broken, wanted), exact=True, runtime="x")


def test_photographs_differ_and_every_picture_is_asked_about() -> None:
    shown = photographs(SEEN)
    assert len({tuple(one.flatten().tolist()) for one in shown}) == 10
    sizes = [[len(batch) for batch in compare._batches(shown * times)] for times in (1, 2)]
    assert sizes == [[1, 2, 7], [1, 2, 7, 7, 3]]
    assert [len(batch) for batch in compare._batches(shown[:1])] == [1, 2, 7]
    assert photographs(vitscope.PreprocessConfig(img_size=(8, 8), in_chans=5, mean=(0.5,) * 5, std=(0.5,) * 5))[
        0
    ].shape == (5, 8, 8)


def test_pictures_of_your_own(tmp_path: Path) -> None:
    (tmp_path / "photos").mkdir()
    for number in range(12):
        pixels = np.random.default_rng(number).integers(0, 256, (20, 30, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"photos/{number}.png")
    report = vitscope.export_model(tiny(), tmp_path / "model.pt2", pictures=tmp_path / "photos")
    assert report.comparison.pictures == 12
    (tmp_path / "photos/0.png").write_bytes(b"torn")
    said: list[str] = []
    left = own_pictures(tmp_path / "photos", vitscope.PreprocessConfig(img_size=(16, 16)), say=said.append)
    assert len(left) == 11
    assert [line.startswith(f"left out: {tmp_path / 'photos/0.png'}: ") for line in said] == [True]
    with pytest.raises(DataError, match="none of the pictures can be compared with"):
        vitscope.export_model(tiny(), tmp_path / "other.pt2", pictures=tmp_path / "photos/0.png")
    with pytest.raises(DataError, match="prepared already"):
        vitscope.export_model(tiny(), tmp_path / "other.pt2", pictures=torch.zeros(3, 16, 16))


# --- refused at once ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "settings", "said"),
    [
        ("model.onx", {}, "ends in .onnx or .pt2"),
        ("model.pt2", {"format": "onnx"}, "ends in .onnx, received"),
        ("model.onnx", {"format": "onxx"}, "one of onnx, pt2"),
        ("model.onnx", {"opset": 17}, "from 18 to 23"),
        ("model.onnx", {"dtype": torch.bfloat16}, "fp32 or fp16 for ONNX"),
        ("model.pt2", {"dtype": torch.float64}, "expected one of torch.float32"),
        ("model.pt2", {"opset": 20}, "has no opset"),
        ("folder.onnx", {}, "expected a file, received the folder"),
    ],
)
def test_mistakes(name: str, settings: dict[str, Any], said: str, tmp_path: Path) -> None:
    (tmp_path / "folder.onnx").mkdir()
    with pytest.raises(UsageError, match=said) as caught:
        vitscope.export_model("no such model", tmp_path / name, **settings)
    assert caught.value.fix


def test_a_file_that_is_there_is_replaced_only_if_asked(tmp_path: Path) -> None:
    model, file = tiny(), tmp_path / "model.pt2"
    file.write_bytes(b"old")
    with pytest.raises(VitscopeError, match="already exists"):
        vitscope.export_model(model, file)
    assert file.read_bytes() == b"old"
    (tmp_path / "link.pt2").symlink_to(file)
    vitscope.export_model(model, tmp_path / "link.pt2", overwrite=True)
    assert (tmp_path / "link.pt2").is_symlink()
    assert_same(file, model)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["link.pt2", "model.pt2"]


def test_without_the_extra_it_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "version_of", lambda name: None if name != "onnx" else "1.0")
    with pytest.raises(UsageError, match="needs onnxscript, onnxruntime, which are not installed") as caught:
        vitscope.export_model(tiny(), tmp_path / "model.onnx")
    assert "pip install 'vitscope[export]'" in (caught.value.fix or "")
    vitscope.export_model(tiny(), tmp_path / "model.pt2")


def test_what_no_file_can_hold_is_refused_before_it_is_traced() -> None:
    with torch.device("meta"):
        huge = ViT(model_config("vit_huge_patch14_224"))  # type: ignore[arg-type]
        giant = build_model(model_config("vit_giant_patch14_dinov2"))
    with pytest.raises(VitscopeError, match=r"weights are 2\.5 GB, and one ONNX file holds at most 2\.1 GB") as caught:
        onnx_file.refuse_too_large(huge, torch.float32)
    assert "--dtype fp16" in (caught.value.fix or "")
    onnx_file.refuse_too_large(huge, torch.float16)
    with pytest.raises(VitscopeError) as caught:
        onnx_file.refuse_too_large(giant, torch.float16)
    assert caught.value.fix == "--format pt2 has no limit"


def test_opset_is_what_was_asked_for(tmp_path: Path) -> None:
    model = tiny()
    report = vitscope.export_model(model, tmp_path / "model.onnx", opset=23)
    assert report.opset == 23
    assert_same(tmp_path / "model.onnx", model)


class Undecided(ViT):
    def forward(self, images: Tensor) -> Tensor:
        logits = super().forward(images)
        return logits if logits.sum() > 0 else -logits


def test_a_network_that_cannot_be_traced(tmp_path: Path) -> None:
    torch.manual_seed(0)
    with pytest.raises(VitscopeError, match="torch could not trace the model"):
        vitscope.export_model(Undecided(ViTConfig(**TINY)), tmp_path / "model.pt2")
    assert list(tmp_path.iterdir()) == []
