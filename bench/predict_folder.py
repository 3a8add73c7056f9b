"""Is the model kept busy? A folder of JPEGs end to end, beside the same model on pictures that are prepared already.

    python bench/predict_folder.py                              # ViT-S/16 at 224, 256 photographs of 160 px
    python bench/predict_folder.py --device cpu --quick         # seconds: does the script work?

Photographs are those of imagenette160 ($VITSCOPE_DATA or data/), written as files; without it noise of that size. End
to end is all that `Predictor.classify(folder)` does: finding files, decoding, resizing, normalising, the model, labels.
The two take turns; the ratio is the median over rounds of that round's ratio.
"""

from __future__ import annotations

import argparse
import io
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from report import report
from vitscope.core.dtypes import usual_dtype
from vitscope.core.errors import UsageError
from vitscope.data.dataset import open_dataset
from vitscope.infer.benchmark.surroundings import surroundings
from vitscope.infer.benchmark.timing import paired_ratio, summary
from vitscope.infer.benchmark.work import prepare_device
from vitscope.infer.pictures import find_pictures
from vitscope.infer.predictor import Predictor
from vitscope.infer.stream import prepare_for, stacked, stream
from vitscope.models.build import build_model
from vitscope.models.variants import model_config


def main() -> None:
    args = parse_arguments()
    device = torch.device(args.device or ("cuda" if torch.cuda.is_available() else "cpu"))
    prepare_device(device)
    count = 8 if args.quick else args.pictures
    model = build_model(model_config("vit_tiny" if args.quick else args.model))
    predictor = Predictor(model, device=device, dtype=usual_dtype(device), batch_size=args.batch, threads=args.threads)
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        kind = write_pictures(folder, count)
        batches = list(prepared(predictor, folder))
        whole, alone = [], []
        for number in range(args.rounds + 1):  # the first is a warm-up
            seconds = [timed(lambda: end_to_end(predictor, folder)), timed(lambda: model_only(predictor, batches))]
            if number:
                whole.append(seconds[0])
                alone.append(seconds[1])
    rates = [summary([count / seconds for seconds in one]) for one in (whole, alone)]
    ratio = paired_ratio(alone, whole)
    row = {
        "model": args.model,
        "pictures": f"{count} {kind}",
        "batch": args.batch,
        "end_to_end_images_per_s": rates[0].median,
        "model_only_images_per_s": rates[1].median,
        "ratio": ratio.median,
        "quartiles": [ratio.low, ratio.high],
    }
    heads = ("pictures", "batch", "end to end, images/s", "model only, images/s", "ratio")
    cells = (row["pictures"], str(args.batch), f"{rates[0].median:.1f}", f"{rates[1].median:.1f}")
    lines = [heads, ("---",) * len(heads), (*cells, f"{ratio.median:.3f} ({ratio.low:.3f} to {ratio.high:.3f})")]
    report(surroundings(device), [row], "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines), args.json)


def timed(work: Callable[[], None]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def end_to_end(predictor: Predictor, folder: Path) -> None:
    found = predictor.classify(folder)
    bad = [told.error for told in found if told.error is not None]
    if bad:
        raise SystemExit(f"a picture could not be read: {bad[0]}")


@torch.inference_mode()
def model_only(predictor: Predictor, batches: list[torch.Tensor]) -> None:
    for images in batches:
        predictor.probabilities(images).cpu()


def prepared(predictor: Predictor, folder: Path) -> Iterator[torch.Tensor]:
    prepare = prepare_for(predictor.preprocessing)
    for batch in stream(find_pictures(folder), prepare, batch_size=predictor.batch_size):
        yield stacked(batch.images, predictor.preprocessing, predictor.device, predictor.dtype)


def write_pictures(folder: Path, count: int) -> str:
    """JPEGs of about 160 px; what they are."""
    try:
        dataset = open_dataset("imagenette160")
    except UsageError:  # no such set here
        for number in range(count):
            noise = np.random.default_rng(number).integers(0, 256, (20, 27, 3), dtype=np.uint8)
            Image.fromarray(noise).resize((213, 160)).save(folder / f"{number:05}.jpg")
        return "JPEGs of noise, 160 x 213"
    for number, row in enumerate(dataset.splits["val"][:count]):
        stored = dataset.source.read(int(row))
        content = stored if isinstance(stored, bytes) else b""
        if not content:
            raise SystemExit("expected encoded pictures")
        Image.open(io.BytesIO(content)).verify()
        (folder / f"{number:05}.jpg").write_bytes(content)
    return "photographs of imagenette160"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", help="cpu or cuda (default: cuda where there is one)")
    parser.add_argument("--model", default="vit_small_patch16_224", help="a model's name")
    parser.add_argument("--pictures", type=int, default=256, help="how many (default: 256)")
    parser.add_argument("--batch", type=int, default=32, help="pictures at once (default: 32)")
    parser.add_argument("--threads", type=int, help="that decode (default: one for each CPU)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of timing (default: 5)")
    parser.add_argument("--quick", action="store_true", help="toy sizes: shows that the script works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
