#!/usr/bin/env python3
"""Times the official SAM 3 on PyTorch with formula weights: the same picture, words and stages as `samite bench`.

    python3 bench/pytorch.py --bpe BPE_VOCAB.txt.gz [--preset full] [--threads 2] [--bf16] [--repeats 2]

Set-up as described at the top of tools/reference/sam3ref.py. Prints one JSON object: seconds per stage, best of the
repeats, and the peak resident size.
"""

import argparse
import json
import os
import resource
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "reference"))

import torch  # noqa: E402
import sam3ref as ref  # noqa: E402
from sam3.model.data_misc import FindStage  # noqa: E402


def best(repeats, work):
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        out = work()
        spent.append(time.perf_counter() - start)
    return min(spent), out


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--bpe", required=True)
    ap.add_argument("--preset", default="full", choices=sorted(ref.PRESETS))
    ap.add_argument("--threads", type=int, default=2)
    ap.add_argument("--bf16", action="store_true")
    ap.add_argument("--repeats", type=int, default=2)
    ap.add_argument("--text", default="a yellow school bus")
    a = ap.parse_args()
    torch.set_num_threads(a.threads)
    c = ref.PRESETS[a.preset]
    start = time.perf_counter()
    model = ref.fill_image_model(ref.image_model(c, a.bpe))
    load = time.perf_counter() - start
    pixels = torch.rand(1, 3, c.image, c.image) * 2 - 1
    stage = FindStage(img_ids=torch.tensor([0]), text_ids=torch.tensor([0]), input_boxes=None, input_boxes_mask=None,
                      input_boxes_label=None, input_points=None, input_points_mask=None)
    with torch.inference_mode(), torch.autocast("cpu", torch.bfloat16, enabled=a.bf16):
        encode, features = best(a.repeats, lambda: model.backbone.forward_image(pixels))
        text, words = best(a.repeats, lambda: model.backbone.forward_text([a.text], device="cpu"))
        ground, _ = best(a.repeats, lambda: model.forward_grounding(
            backbone_out={**features, **words}, find_input=stage, geometric_prompt=model._get_dummy_prompt(),
            find_target=None))
    print(json.dumps({"engine": "pytorch " + torch.__version__, "arithmetic": "bf16" if a.bf16 else "f32",
                      "threads": a.threads, "load": load, "image_encode": encode, "text": text, "ground": ground,
                      "peak_rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))


if __name__ == "__main__":
    main()
