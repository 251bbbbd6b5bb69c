"""Writes what pycocotools and torch make of small masks, polygons and logits.

    python3 make_mask_fixtures.py --out tests/golden/io/masks.json

Needs numpy, torch, scipy, pycocotools.
"""

import argparse
import json

import numpy as np
import scipy.ndimage as nd
import torch
from pycocotools import mask as coco


def some_mask(rng, kind, h, w):
    if kind == 0:
        return (rng.random((h, w)) < rng.random()).astype(np.uint8)
    if kind == 1:
        return np.full((h, w), rng.integers(0, 2), np.uint8)
    smooth = nd.gaussian_filter(rng.standard_normal((h, w)), rng.uniform(.7, 4))
    return (smooth > np.quantile(smooth, rng.random())).astype(np.uint8)


def rows_of(mask):
    return ["".join("#" if v else "." for v in row) for row in mask]


def encode(mask):
    return coco.encode(np.asfortranarray(mask, dtype=np.uint8))


def mask_case(rng, i):
    h, w = (int(v) for v in rng.integers(1, 34, 2))
    a, b = some_mask(rng, i % 4, h, w), some_mask(rng, (i // 2) % 4, h, w)
    ca, cb = encode(a), encode(b)
    labels, parts = nd.label(a, np.ones((3, 3)))
    return {"rows": rows_of(a), "counts": ca["counts"].decode(), "area": int(coco.area(ca)),
            "box": [float(v) for v in coco.toBbox(ca)], "other": cb["counts"].decode(),
            "union": coco.merge([ca, cb], False)["counts"].decode(),
            "common": coco.merge([ca, cb], True)["counts"].decode(),
            "iou": float(coco.iou([ca], [cb], [0])[0, 0]), "iou_crowd": float(coco.iou([ca], [cb], [1])[0, 0]),
            "parts": int(parts), "part_areas": [int((labels == k + 1).sum()) for k in range(parts)]}


def polygon_case(rng, i):
    h, w = (int(v) for v in rng.integers(1, 60, 2))
    k = int(rng.integers(3, 14))
    xy = rng.random((k, 2)) * [w * 1.4, h * 1.4] - [w * .2, h * .2]
    xy = np.round(xy, 0 if i % 3 == 0 else 2).reshape(-1).tolist()
    return {"width": w, "height": h, "xy": xy, "counts": coco.frPyObjects([xy], h, w)[0]["counts"].decode()}


def box_case(rng):
    a, b = (np.round(rng.random((2, 4)) * 20, 1)).tolist()
    return {"a": a, "b": b, "iou": float(coco.iou([a], [b], [0])[0, 0]),
            "iou_crowd": float(coco.iou([a], [b], [1])[0, 0])}


def logits_case(rng, h, w, height, width):
    x = np.round(nd.gaussian_filter(rng.standard_normal((h, w)), 1.5) * 10, 3).astype(np.float32)
    y = torch.nn.functional.interpolate(torch.from_numpy(x)[None, None], size=(height, width), mode="bilinear",
                                        align_corners=False)[0, 0].numpy()
    near = int((np.abs(y) < 1e-5).sum())
    assert near == 0, "a value too near to the threshold to compare masks"
    return {"h": h, "w": w, "height": height, "width": width, "logits": [float("%.3f" % v) for v in x.reshape(-1)],
            "every7": [float("%.7g" % v) for v in y.reshape(-1)[::7]],
            "counts": encode((y > 0).astype(np.uint8))["counts"].decode()}


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    rng = np.random.default_rng(3)
    sizes = ((18, 18, 47, 61), (20, 12, 20, 12), (9, 14, 5, 40), (1, 1, 6, 3), (30, 7, 11, 3))
    data = {"masks": [mask_case(rng, i) for i in range(60)], "polygons": [polygon_case(rng, i) for i in range(60)],
            "boxes": [box_case(rng) for _ in range(20)],
            "logits": [logits_case(rng, *s) for s in sizes]}
    with open(a.out, "w") as f:
        json.dump(data, f, separators=(",", ":"))
    print({k: len(v) for k, v in data.items()})


if __name__ == "__main__":
    main()
