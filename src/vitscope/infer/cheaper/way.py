"""A way to ask a model: in which numbers, and how it is launched."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from vitscope.core.environment import why_no_compiler
from vitscope.core.errors import UsageError, expected
from vitscope.core.packages import version_of
from vitscope.core.suggest import did_you_mean
from vitscope.infer.cheaper.dtypes import DTYPES, Dtype
from vitscope.infer.launched import LAUNCHES, Launch


@dataclass(frozen=True)
class Way:
    """`str(way)` is 'int8 compiled', and `Way.named` reads it."""

    dtype: Dtype = "fp32"
    launch: Launch = "eager"
    keep_float: tuple[str, ...] = ()
    """Linear layers that stay floats where the others have 8 bits."""

    def __str__(self) -> str:
        kept = f", {len(self.keep_float)} layers in floats" if self.keep_float else ""
        return f"{self.dtype} {self.launch}{kept}"

    def flags(self) -> str:
        """What `vitscope predict` is told."""
        kept = f" --keep-float {' '.join(self.keep_float)}" if self.keep_float else ""
        return f"--dtype {self.dtype} --launch {self.launch}{kept}"

    @classmethod
    def named(cls, name: str) -> Way:
        dtype, _, launch = name.replace("+", " ").strip().partition(" ")
        launch = launch.strip() or "eager"
        if dtype not in DTYPES or launch not in LAUNCHES:
            wanted = f"a type ({', '.join(DTYPES)}), and a launch ({', '.join(LAUNCHES)}), such as 'int8 compiled'"
            known = [*DTYPES, *(f"{one} {other}" for one in DTYPES for other in LAUNCHES)]
            fix = did_you_mean(name, known) or "leave it out: all that the device has are tried"
            raise UsageError(expected("way", wanted, name), where="ways to ask a model", fix=fix)
        return cls(dtype, launch)


PLAIN = Way()


def ways_for(device: torch.device) -> tuple[list[Way], list[str]]:
    """All ways worth measuring on a device, plain fp32 first; and what is left out, and why."""
    left_out = []
    dtypes: list[Dtype] = ["fp32", "bf16"]
    launches: list[Launch] = ["eager", "compiled"]
    if device.type == "cuda":
        dtypes.append("fp16")  # on a CPU its kernels are slow, where there are some
        launches.extend(("graph", "compiled_graph"))
    if version_of("torchao") is None:
        left_out.append("int8: torchao is not installed (pip install 'vitscope[quant]')")
    else:
        dtypes.extend(("int8", "int8_weights"))
    missing = why_no_compiler(device.type)
    if missing is not None:
        left_out.append(f"compiled: {missing}")
        launches = [launch for launch in launches if not launch.startswith("compiled")]
    return [Way(dtype, launch) for dtype in dtypes for launch in launches], left_out
