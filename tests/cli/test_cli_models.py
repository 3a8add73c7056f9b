"""`vitscope models`: the list, the table of costs, the shapes, the advice, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import vitscope
from vitscope.cli.main import main
from vitscope.models.accounting.account import Account
from vitscope.models.build import build_model
from vitscope.models.config import ViTConfig
from vitscope.models.trace import trace_shapes
from vitscope.models.variants import list_models, model_config


def said(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    assert main(["models", *args]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out


def data(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    return json.loads(said(capsys, *args, "--json"))


def refused(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main(["models", *args]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    lines = err.splitlines()
    assert 2 <= len(lines) <= 3
    assert lines[1].startswith("where: ")
    return lines


def row(table: str, start: str) -> list[str]:
    """The words of the line that begins with `start`."""
    found = [line.removeprefix(start).split() for line in table.splitlines() if line.startswith(start)]
    assert len(found) == 1, f"{start!r} in {len(found)} lines"
    return found[0]


# --- as a user runs it ------------------------------------------------------------------------------------------


def test_vit_base_16_shows_the_numbers_of_the_paper(shell) -> None:
    done = shell("models", "vit_base_patch16_224")
    assert done.returncode == 0
    assert done.stderr == ""
    table = done.stdout
    assert row(table, "patch_embed.proj")[-4:-1] == ["589,824", "768", "590,592"]
    assert row(table, "pos_embed")[-1] == "151,296"
    assert row(table, "cls_token")[-1] == "768"
    qkv = "2304 x 768 1,769,472 2,304 x 12 21,261,312 4,183,031,808"
    assert row(table, "blocks.0-11.attn.qkv") == qkv.split()
    assert row(table, "blocks.0-11.attn.proj")[3:5] == ["589,824", "768"]
    assert row(table, "blocks.0-11.mlp.fc1")[3:5] == ["2,359,296", "3,072"]
    assert row(table, "blocks.0-11.mlp.fc2")[3:5] == ["2,359,296", "768"]
    assert row(table, "head") == ["1000", "x", "768", "768,000", "1,000", "769,000", "768,000"]
    assert row(table, "in all") == ["86,567,656", "17,563,828,224"]
    assert "17.56 G multiply-adds" in table
    assert "346.3 MB in fp32, 173.1 MB in bf16" in table
    assert "197 per image" in table


# --- the list ---------------------------------------------------------------------------------------------------


def test_a_wildcard_filters_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    rows = data(capsys, "deit_*")
    assert [row["name"] for row in rows] == list_models("deit_*")
    assert len(rows) == 8
    first = rows[0]
    assert first["name"] == "deit_base_distilled_patch16_224"
    assert (first["tokens"], first["parameters"], first["embed_dim"]) == (198, 87_338_192, 768)


@pytest.mark.parametrize(
    "word", ["swin", "deit", "DeiT", "resnet", "dinov2", "guide", "mae", "mnist", "vit_large", "vit_base_patch16"]
)
def test_a_part_of_names_searches(word: str, capsys: pytest.CaptureFixture[str]) -> None:
    names = [row["name"] for row in data(capsys, word)]
    assert names == list_models(f"*{word.lower()}*")
    assert len(names) > 1


def test_the_word_may_come_after_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["models", "--json", "swin"]) == 0
    assert len(json.loads(capsys.readouterr().out)) == 4


def test_the_list_speaks_of_every_family(capsys: pytest.CaptureFixture[str]) -> None:
    rows = {row["name"]: row for row in data(capsys)}
    assert set(rows) == set(list_models())
    assert rows["resnet18"]["parameters"] == 11_689_512
    assert rows["resnet18"]["patch_size"] is None
    assert rows["swin_tiny_patch4_window7_224"]["depth"] == 12
    assert rows["mae_vit_base_patch16"]["img_size"] == 224
    assert rows["mnist_lstm"]["tokens"] is None


def test_the_table_has_a_line_for_every_model(capsys: pytest.CaptureFixture[str]) -> None:
    table = said(capsys, "*patch16*")
    names = [line.split()[0] for line in table.splitlines() if line and line[0].isalpha()]
    assert names == ["name", *list_models("*patch16*")]
    assert row(table, "vit_large_patch16_384")[:8] == ["384", "16", "1024", "24", "16", "577", "1000", "304,715,752"]
    assert f"\n{len(names) - 1} models; " in table


def test_one_model_is_not_called_models(capsys: pytest.CaptureFixture[str]) -> None:
    assert "\n1 model; " in said(capsys, "vit_tin[y]")


# --- one model --------------------------------------------------------------------------------------------------


def test_json_says_what_the_account_says(capsys: pytest.CaptureFixture[str]) -> None:
    told = data(capsys, "vit_tiny", "--batch", "4")
    account = Account(model_config("vit_tiny"), batch=4)
    assert (
        told["parameters"]
        == account.parameters
        == 2_697_610
        == sum(part["weights"] + part["biases"] for part in told["parts"])
    )
    assert told["macs"] == account.macs == sum(part["macs"] for part in told["parts"])
    assert told["tokens"] == 65
    assert (told["bytes_fp32"], told["bytes_bf16"]) == (2_697_610 * 4, 2_697_610 * 2)
    memory = told["training_memory_bytes"]
    assert memory["batch"] == 4
    fixed = memory["weights"] + memory["gradients"] + memory["optimiser"]
    assert memory["total_fp32"] == fixed + memory["activations_fp32"]
    assert memory["total_bf16"] == fixed + memory["weights_bf16"] + memory["activations_bf16"]
    assert told["config"]["depth"] == 9


def test_the_name_may_come_after_the_flags(capsys: pytest.CaptureFixture[str]) -> None:
    assert said(capsys, "--trace", "vit_tiny", "--batch", "2") == said(capsys, "vit_tiny", "--batch", "2", "--trace")
    assert data(capsys, "--model.depth", "3", "vit_tiny")["config"]["depth"] == 3


@pytest.mark.parametrize("flag", ["--model.depth", "--model.depth="])
def test_settings_of_the_model_are_flags(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    typed = [flag + "3"] if flag.endswith("=") else [flag, "3"]
    told = data(capsys, "vit_tiny", *typed)
    assert told["config"]["depth"] == 3
    assert told["parameters"] == Account(ViTConfig(**{**vars(model_config("vit_tiny")), "depth": 3})).parameters
    assert {part["name"].split(".")[1] for part in told["parts"] if part["name"].startswith("blocks.")} == {*"012"}


def test_short_flags_for_size_and_classes(capsys: pytest.CaptureFixture[str]) -> None:
    told = data(capsys, "vit_tiny", "--img-size", "64", "--num-classes", "7")
    assert (told["config"]["img_size"], told["config"]["num_classes"], told["tokens"]) == (64, 7, 257)


@pytest.mark.parametrize("args", [("vit_tiny", "--img-size", "48", "64"), ("--img-size", "48", "64", "vit_tiny")])
def test_pictures_may_be_oblong(args: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    told = data(capsys, *args)
    assert (told["config"]["img_size"], told["tokens"]) == ([48, 64], 12 * 16 + 1)


def test_the_name_is_not_taken_for_a_second_side(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "--img-size", "48", "vit_tiny")["config"]["img_size"] == 48


def test_help_for_a_model_shows_the_name_and_its_settings(capsys: pytest.CaptureFixture[str]) -> None:
    text = said(capsys, "vit_small", "--help")
    assert "[NAME]" in text.splitlines()[0]
    assert "--model.depth" in text
    assert "vitscope models swin" in text


def test_settings_of_an_encoder_are_flags(capsys: pytest.CaptureFixture[str]) -> None:
    told = data(capsys, "mae_vit_base_patch16", "--model.encoder.img-size", "64", "--model.decoder-depth", "1")
    assert told["config"]["encoder"]["img_size"] == 64
    assert told["tokens"] == 17


# --- shapes -----------------------------------------------------------------------------------------------------


def test_trace_is_the_road_of_the_images(capsys: pytest.CaptureFixture[str]) -> None:
    table = said(capsys, "vit_base_patch16_224", "--trace", "--batch", "2")
    assert "2 x 3 x 224 x 224" in table
    assert row(table, "patch_embed ")[1:6] == ["2", "x", "196", "x", "768"]
    assert row(table, "blocks.0-11.attn.qkv")[1:8] == ["2", "x", "197", "x", "2304", "x", "12"]
    assert row(table, "output")[:3] == ["2", "x", "1000"]


def test_trace_as_json_has_every_stage(capsys: pytest.CaptureFixture[str]) -> None:
    stages = data(capsys, "vit_tiny", "--trace", "--batch", "3")["stages"]
    wanted = trace_shapes(model_config("vit_tiny"), 3)
    assert [(stage["name"], tuple(stage["shape"])) for stage in stages] == [(s.name, s.shape) for s in wanted]


# --- advice -----------------------------------------------------------------------------------------------------


def test_advice_names_a_model_with_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    out = said(capsys, "--advise", "--images", "5000", "--memory-gb", "8")
    assert out.startswith("take vit_small at img_size 32, patch_size 4\n")
    assert "because  small pictures: the default for CIFAR-sized data" in out
    assert "careful  5,000 pictures are few" in out
    assert row(out, "vit_small ")[-7:] == ["8", "/", "12", "1.9", "(128)", "30,834", "(1024)"]


def test_advice_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    told = data(capsys, "--advise", "--wish", "speed", "--img-size", "224")
    assert told["model"] == told["candidates"][0]["name"] == "vit_base_patch32_224"
    assert told["why"]
    assert told["candidates"][0]["largest_batch"] is None
    assert told["candidates"][1]["guide_memory_gb"] == [12, 16]


# --- what is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("args", "what", "todo"),
    [
        ("vit_smal", "unknown model 'vit_smal'", "did you mean 'vit_small'"),
        ("--json vit_smal", "unknown model 'vit_smal'", "did you mean 'vit_small'"),
        ("vit_smal --model.depth 3", "unknown model 'vit_smal'", "did you mean 'vit_small'"),
        ("VIT_SMALL", "unknown model 'VIT_SMALL'", "did you mean 'vit_small'"),
        ("resnet5", "unknown model 'resnet5'", "did you mean 'resnet50'"),
        ("zz", "unknown model 'zz'", "`vitscope models` lists them"),
        ("zz*", "no model matches 'zz*'", "`vitscope models` lists them"),
        ("swin --trace", "--trace: expected the NAME of one model beside it, received 'swin'", ""),
        ("swin vit_small", "vitscope models: expected no more, received 'vit_small'", ""),
        (
            "vit_tiny --img-size 48 64 80",
            "--img-size: expected a whole number or 2 whole numbers, received '48' '64' '80'",
            "",
        ),
        (
            "--advise --img-size 48 64",
            "img_size: expected one number beside --advise, received (48, 64)",
            "give the shorter",
        ),
        ("vit_tiny --model.dpeth 3", "unknown flag '--model.dpeth'", "did you mean '--model.depth'?"),
        ("vit_tiny --model.hidden-size 3", "unknown flag '--model.hidden-size'", "you mean '--model.embed-dim'"),
        ("vit_tiny --num_hidden_layers 3", "unknown flag '--num_hidden_layers'", "you mean '--model.depth'"),
        (
            "vit_tiny --model.num-heads 5",
            "num_heads: expected a divisor of embed_dim 192, received 5",
            "nearest that divides: 4",
        ),
        (
            "vit_tiny --img-size 33",
            "img_size: expected a multiple of patch_size 4, received 33",
            "nearest that fit: 32 or 36",
        ),
        ("vit_tiny --model.depth -1", "depth: expected a positive integer, received -1", ""),
        (
            "vit_tiny --model.pool sum",
            "--model.pool: expected one of 'cls', 'mean', 'attention', received 'sum'",
            "",
        ),
        ("mae_vit_base_patch16 --num-classes 4", "mae_vit_base_patch16 has no classifier", "leave --num-classes out"),
        ("vit_tiny --batch 0", "batch: expected from 1 to 1,000,000, received 0", ""),
        ("vit_tiny --batch 99999999999999999999", "batch: expected from 1 to 1,000,000, received 999", ""),
        ("vit_tiny vit_small", "vitscope models: expected no more, received 'vit_small'", ""),
        # A flag that would do nothing is a misunderstanding.
        ("--trace", "--trace: expected the NAME of one model beside it, received None", "`vitscope models vit_small"),
        ("deit_* --batch 3", "--batch: expected the NAME of one model beside it, received 'deit_*'", ""),
        ("--num-classes 3", "--num-classes: expected the NAME of one model beside it", ""),
        ("vit_tiny --wish speed", "wish: expected --advise beside it", "add --advise"),
        ("vit_tiny --memory-gb 8", "memory_gb: expected --advise beside it", "add --advise"),
        ("--advise vit_tiny", "--advise: expected no NAME, it chooses one, received 'vit_tiny'", "leave out the NAME"),
        ("--advise --img-size 4", "img_size: expected at least 8 pixels, received 4", ""),
        ("--advise --images 0", "images: expected a positive number, received 0", ""),
        ("--advise --memory-gb inf", "memory_gb: expected a positive number below 1e9, received inf", ""),
        ("--advise --trace", "advice does not depend on --trace", "leave --trace out"),
        ("--advise --num-classes 3", "advice does not depend on --num-classes", "leave --num-classes out"),
    ],
)
def test_refusals(args: str, what: str, todo: str, capsys: pytest.CaptureFixture[str]) -> None:
    lines = refused(capsys, *args.split())
    assert lines[0].startswith(f"error: {what}")
    if todo:
        assert lines[2].startswith(f"to do: {todo}")


def test_saved_models_are_counted_as_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Heads and neurons that differ from block to block too; by its folder, a run's or an experiment's."""
    monkeypatch.chdir(tmp_path)
    config = ViTConfig(
        img_size=8, patch_size=4, embed_dim=32, depth=2, num_heads=(2, 1), head_dim=16, mlp_dim=(24, 40), num_classes=4
    )
    model = build_model(config)
    vitscope.save_model(model, "mine/model")
    weights = sum(parameter.numel() for parameter in model.parameters())
    for name in ("mine/model", "mine", str(tmp_path / "mine")):
        assert data(capsys, name)["parameters"] == weights
    assert data(capsys, "mine", "--img-size", "16")["config"]["img_size"] == 16
    assert main(["models", "mine"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("mine  a saved model, for images 3 x 8 x 8")
    assert f"{weights:,}" in shown
    assert main(["models", "mine", "--trace"]) == 0
    assert "1 x 5 x 32" in capsys.readouterr().out
    (tmp_path / "photos").mkdir()
    assert "unknown model 'photos'" in refused(capsys, "photos")[0]
    assert "unknown model 'mine/nothing'" in refused(capsys, "mine/nothing")[0]


def test_a_masked_model_hands_the_image_size_to_its_encoder(capsys: pytest.CaptureFixture[str]) -> None:
    assert data(capsys, "mae_vit_base_patch16", "--img-size", "64")["config"]["encoder"]["img_size"] == 64
