"""ViTs written by hand, under names and in ways of their own: looked at like any other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from doctor.conftest import CLASSES
from doctor.healthy import SIZE, EncoderViT
from vitscope.doctor.anatomy import anatomy_of
from vitscope.doctor.check import Check
from vitscope.doctor.checks import CHECKS
from vitscope.doctor.examination import Asked, examine
from vitscope.doctor.finding import Seen
from vitscope.doctor.patient import Patient
from vitscope.doctor.thresholds.whole import SURE_ENOUGH

Make = Callable[..., Patient]
DIM = 48


class Rearrange(nn.Module):
    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side

    def forward(self, x: Tensor) -> Tensor:
        b, c, h, w = x.shape
        p = self.side
        return x.view(b, c, h // p, p, w // p, p).permute(0, 2, 4, 3, 5, 1).reshape(b, -1, p * p * c)


class LucidAttention(nn.Module):
    """vit-pytorch's names; `out` is what its last layer is called."""

    def __init__(self, heads: int, dim_head: int, *, is_scaled: bool, turns_back: bool, out: str) -> None:
        super().__init__()
        inner = heads * dim_head
        self.heads, self.scale, self.turns_back, self.out_name = heads, dim_head**-0.5, turns_back, out
        self.scale = dim_head**-0.5 if is_scaled else 1.0
        self.to_qkv = nn.Linear(DIM, 3 * inner, bias=False)
        setattr(self, out, nn.Sequential(nn.Linear(inner, DIM), nn.Dropout(0.0)) if out == "to_out" else None)
        if out != "to_out":
            setattr(self, out, nn.Linear(inner, DIM))

    def forward(self, x: Tensor) -> Tensor:
        b, n, _ = x.shape
        q, k, v = (one.view(b, n, self.heads, -1).transpose(1, 2) for one in self.to_qkv(x).chunk(3, -1))
        mixed = (q @ k.transpose(-1, -2) * self.scale).softmax(-1) @ v
        return getattr(self, self.out_name)((mixed.transpose(1, 2) if self.turns_back else mixed).reshape(b, n, -1))


class LucidViT(nn.Module):
    def __init__(
        self, *, side: int = 4, heads: int = 2, dim_head: int = 32, has_position: bool = True, is_scaled: bool = True,
        turns_back: bool = True, out: str = "to_out", filters: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        pixels = 3 * side * side
        cut = [Rearrange(side), nn.LayerNorm(pixels), nn.Linear(pixels, DIM)]
        self.to_embedding = nn.Conv2d(3, DIM, side, side) if filters else nn.Sequential(*cut)
        self.places = nn.Parameter(torch.randn(1, (SIZE // side) ** 2 + 1, DIM) * 0.02) if has_position else None
        self.cls_token = nn.Parameter(torch.randn(1, 1, DIM) * 0.02)
        attention = {"is_scaled": is_scaled, "turns_back": turns_back, "out": out}
        self.layers = nn.ModuleList(
            nn.ModuleList([
                nn.LayerNorm(DIM),
                LucidAttention(heads, dim_head, **attention),  # pyright: ignore[reportArgumentType]
                nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, 2 * DIM), nn.GELU(), nn.Linear(2 * DIM, DIM)),
            ])
            for _ in range(2)
        )  # fmt: skip
        self.head = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, CLASSES))

    def forward(self, images: Tensor) -> Tensor:
        x = self.to_embedding(images)
        x = x.flatten(2).transpose(1, 2) if x.ndim == 4 else x
        x = torch.cat((self.cls_token.expand(len(x), -1, -1), x), 1)
        x = x if self.places is None else x + self.places
        for norm, attention, mlp in self.layers:  # pyright: ignore[reportGeneralTypeIssues]
            x = x + attention(norm(x))
            x = x + mlp(x)
        return self.head(x[:, 0])


class UnfoldViT(EncoderViT):
    """torch's own encoder over patches cut by a function."""

    def __init__(self, *, side: int = 4, has_position: bool = True) -> None:
        super().__init__(norm_first=True, depth=2, dropout=0.0)
        self.side = side
        self.patch = nn.Linear(3 * side * side, 64)
        self.pos = nn.Parameter(torch.randn(1, (SIZE // side) ** 2 + 1, 64) * 0.02) if has_position else None

    def forward(self, images: Tensor) -> Tensor:
        x = self.patch(F.unfold(images, self.side, stride=self.side).transpose(1, 2))
        x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1)
        return self.head(self.encoder(x if self.pos is None else x + self.pos)[:, 0])


def examined(patient: Patient, checks: list[Check]) -> list[Asked]:
    asked = examine(patient, checks).asked
    assert all(one.failed is None for one in asked), asked
    return asked


def seen(patient: Patient, *names: str) -> dict[str, Seen]:
    checks: list[Check] = [check for check in CHECKS if check.name in names]
    return {asked.check.name: asked.seen for asked in examined(patient, checks)}


FAULTS: dict[str, tuple[str, Callable[[], nn.Module], str]] = {
    "heads": ("head_dim", lambda: LucidViT(heads=12, dim_head=4), "head_dim_too_small"),
    "patches of all pixels": ("patches", lambda: LucidViT(side=8), "patch_too_coarse"),
    "patches of filters": ("patches", lambda: LucidViT(side=8, filters=True), "patch_too_coarse"),
    "patches by unfold": ("patches", lambda: UnfoldViT(side=8), "patch_too_coarse"),
    "positions": ("positions", lambda: LucidViT(has_position=False), "no_position_information"),
    "positions, unfold": ("positions", lambda: UnfoldViT(has_position=False), "no_position_information"),
    "scale": ("attention", lambda: LucidViT(is_scaled=False, out="o"), "attention_scale_missing"),
    "merge": ("attention", lambda: LucidViT(turns_back=False, out="o"), "heads_merged_wrongly"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen_under_other_names(patient: Make, fault: str) -> None:
    check, make, cause = FAULTS[fault]
    torch.manual_seed(0)
    found = seen(patient(make()), check)[check]
    assert [finding.cause for finding in found.findings] == [cause], found


@pytest.mark.parametrize("make", [LucidViT, lambda: LucidViT(filters=True, out="o"), UnfoldViT])
def test_healthy_ones_are_seen_and_fine(patient: Make, make: Callable[[], nn.Module]) -> None:
    torch.manual_seed(0)
    for name, one in seen(patient(make()), "head_dim", "patches", "positions", "attention").items():
        assert all(finding.confidence < SURE_ENOUGH for finding in one.findings), one
        is_torchs_own = name == "attention" and make is UnfoldViT  # which shows no parts
        assert one.left_out == ("no_attention_to_see" if is_torchs_own else None)


def test_heads_that_are_wider_than_their_share_are_not_narrow(patient: Make) -> None:
    """vit-pytorch's own default: 8 heads of 64 over whatever width."""
    model = LucidViT(heads=8, dim_head=64)
    anatomy = anatomy_of(model)
    assert (anatomy.embed_dim, anatomy.num_heads, anatomy.head_dim, anatomy.depth) == (DIM, 8, 64, 2)
    assert seen(patient(model), "head_dim")["head_dim"].measured == {"head_dim": 64}
    assert anatomy_of(LucidViT(heads=3, dim_head=16)).head_dim is None, "it follows from the width"


def test_positions_by_the_number_of_tokens_where_no_layer_tells_patches(patient: Make) -> None:
    class Stem(UnfoldViT):
        """Two filters that overlap nowhere, each half a patch."""

        def __init__(self, **given: bool) -> None:
            super().__init__(**given)
            self.patch = nn.Sequential(nn.Conv2d(3, 32, 2, 2), nn.GELU(), nn.Conv2d(32, 64, 2, 2))

        def forward(self, images: Tensor) -> Tensor:
            x = self.patch(images).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls.expand(len(x), -1, -1), x), 1)
            return self.head(self.encoder(x if self.pos is None else x + self.pos)[:, 0])

    torch.manual_seed(0)
    found = seen(patient(Stem(has_position=False)), "positions")["positions"]
    assert [finding.cause for finding in found.findings] == ["no_position_information"]
    assert not seen(patient(Stem()), "positions")["positions"].findings


def test_what_cannot_be_compared_is_left_out_not_fine(patient: Make) -> None:
    class Twisted(LucidAttention):
        """Neither its scores nor its merge are what anybody would compute again."""

        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.sin()).flip(1).mean(1, keepdim=True).expand_as(x)

    model = LucidViT(out="to_out")
    for layer in model.layers:
        layer[1].__class__ = Twisted  # pyright: ignore
        layer[1].beside = nn.Linear(3, 3)  # pyright: ignore
        layer[1].to_last, layer[1].out_name = layer[1].to_out, "to_last"  # pyright: ignore
        del layer[1].to_out  # pyright: ignore
    found = seen(patient(model), "attention", "head_dim")
    assert found["attention"].left_out == "attention_not_compared"
    assert found["head_dim"].left_out is None


def test_attention_of_unknown_heads_is_not_called_absent(patient: Make) -> None:
    class TwoHeads(LucidAttention):
        """That there are two stands nowhere but in its code."""

        def forward(self, x: Tensor) -> Tensor:
            q, k, v = (one.chunk(2, -1) for one in self.to_qkv(x).chunk(3, -1))
            heads = (F.scaled_dot_product_attention(q[at], k[at], v[at]) for at in range(2))
            return self.to_out(torch.cat([*heads], -1))  # pyright: ignore[reportCallIssue]

    model = LucidViT()
    for layer in model.layers:
        layer[1].__class__ = TwoHeads  # pyright: ignore
        del layer[1].heads  # pyright: ignore
    found = seen(patient(model), "head_dim", "patches", "positions")
    assert found["head_dim"].left_out == "heads_not_known"
    assert found["patches"].measured["tokens"] == 16
    assert found["positions"].left_out is None
