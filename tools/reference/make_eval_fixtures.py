"""Makes evaluation files with the features that break evaluators; compares samite with the reference programs on them.

    make_eval_fixtures.py make DIR [--seed N] [--kind mixed|ties|empty|strings|floats|zero|negative|many]
    make_eval_fixtures.py compare SAMITE [--count N] [--first SEED]     random files: samite against pycocotools
    make_eval_fixtures.py cgf1 SAMITE [--count N]                       samite against sam3.eval.cgf1_eval
    make_eval_fixtures.py video SAMITE [--count N]                      samite against TrackEval (HOTA, J&F), to 1e-12
    make_eval_fixtures.py golden DIR                                    tracks and phrases of tests/golden/eval
    make_eval_fixtures.py big DIR [--images N --objects N --detections N] [--masks]

SAMITE is the program. Every double has to be equal. Needs numpy and pycocotools (cgf1: sam3; video: trackeval,
scikit-image, opencv-python-headless).
"""

import argparse
import contextlib
import importlib
import io
import json
import os
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError:
    print("skipped: there is no numpy")
    sys.exit(77)

KINDS = ("mixed", "ties", "empty", "strings", "floats", "zero", "negative", "many", "boxes", "masks", "repeated")


def blob(rng, h, w, cx, cy, rx, ry, points=20):
    t = np.linspace(0, 2 * np.pi, points, endpoint=False)
    k = 1 + 0.2 * np.sin(t * rng.randint(2, 5) + rng.rand() * 6)
    xs, ys = np.clip(cx + rx * k * np.cos(t), 0, w), np.clip(cy + ry * k * np.sin(t), 0, h)
    return [float(np.round(v, 2)) for pair in zip(xs, ys) for v in pair]


def rle_of(polygons, h, w):
    from pycocotools import mask
    return mask.merge(mask.frPyObjects(polygons, h, w))


def text_rle(rle):
    return {"size": [int(v) for v in rle["size"]], "counts": rle["counts"].decode()}


def list_rle(rle):
    from pycocotools import mask
    flat = mask.decode(rle).T.reshape(-1)
    edges = np.flatnonzero(np.diff(np.concatenate([[0], flat, [2]])))
    return {"size": list(map(int, rle["size"])), "counts": [int(c) for c in np.diff(np.concatenate([[0], edges]))]}


def some_id(kind, number):
    return "img_%d" % number if kind == "strings" else number + 0.5 if kind == "floats" else number


def one_object(rng, kind, h, w, form):
    from pycocotools import mask
    scale = rng.choice([0.04, 0.15, 0.5])
    cx, cy = rng.rand() * w, rng.rand() * h
    rx, ry = max(1.5, scale * w * rng.rand()), max(1.5, scale * h * rng.rand())
    polygons = [blob(rng, h, w, cx, cy, rx, ry)]
    if rng.rand() < 0.2:
        polygons.append(blob(rng, h, w, rng.rand() * w, rng.rand() * h, 4, 5))
    rle = rle_of(polygons, h, w)
    if mask.area(rle) == 0:
        return None
    return {"place": (cx, cy, rx, ry), "bbox": [float(v) for v in mask.toBbox(rle)], "area": float(mask.area(rle)),
            "segmentation": polygons if form == 0 else list_rle(rle) if form == 1 else text_rle(rle)}


def one_result(rng, kind, h, w, place, image, category):
    from pycocotools import mask
    cx, cy, rx, ry = place
    polygons = [blob(rng, h, w, cx + rng.randn() * rx * 0.2, cy + rng.randn() * ry * 0.2, rx * (0.7 + 0.6 * rng.rand()),
                     ry * (0.7 + 0.6 * rng.rand()))]
    rle = rle_of(polygons, h, w)
    if mask.area(rle) == 0:
        return None
    digits = 1 if kind == "ties" else 7 if rng.rand() < 0.5 else 3
    d = {"image_id": image, "category_id": category, "score": float(np.round(rng.rand(), digits))}
    if kind == "ties" and rng.rand() < 0.1:
        d["score"] = int(rng.randint(2))
    box = [float(v) for v in mask.toBbox(rle)]
    if rng.rand() < 0.3:
        box = [float(np.round(v + rng.randn() * 0.3, 3)) for v in box]
    form = rng.randint(6)
    if kind != "masks":
        d["bbox"] = box
    if kind != "boxes":
        plain = kind == "masks"  # without boxes the original takes compressed run lengths only
        d["segmentation"] = text_rle(rle) if plain or form > 1 else list_rle(rle) if form == 1 else polygons
    if kind not in ("boxes", "masks") and form == 5:
        del d["segmentation"]
    return d


def make(seed, kind="mixed"):
    """Ground truth and results, as the files hold them."""
    rng = np.random.RandomState(seed)
    ids = sorted(rng.choice(90, rng.randint(1, 7), replace=False) + (0 if kind == "zero" else 1))
    if kind == "negative":
        ids[0] = -3
    cats = [{"id": int(i), "name": "c%d" % i} for i in ids]
    rng.shuffle(cats)
    images, anns, dets = [], [], []
    numbers = rng.permutation(60)[:rng.randint(1, 16)]
    for n in numbers:
        h, w = int(rng.randint(20, 260)), int(rng.randint(20, 300))
        image = some_id(kind, int(n))
        images.append({"id": image, "height": h, "width": w, "file_name": "%d.jpg" % n})
        for _ in range(rng.randint(0, 8)):
            o = one_object(rng, kind, h, w, rng.randint(3))
            if o is None:
                continue
            place = o.pop("place")
            category = int(ids[rng.randint(max(1, len(ids) - 1))])
            o.update(id=len(anns) + (0 if kind == "zero" else 1), image_id=image, category_id=category,
                     iscrowd=int(rng.rand() < 0.1))
            if rng.rand() < 0.05:
                o["ignore"] = 1
            if kind == "repeated" and anns and rng.rand() < 0.1:
                o["id"] = anns[rng.randint(len(anns))]["id"]
            if rng.rand() < 0.1:
                o["area"] = float(rng.choice([0, 1024, 9216, 1e5, 1e10, 1e11]))
            if o["iscrowd"] and isinstance(o["segmentation"], list) and rng.rand() < 0.7:
                o["segmentation"] = text_rle(rle_of(o["segmentation"], h, w))
            anns.append(o)
            for _ in range(rng.randint(0, 3)):
                dets.append(one_result(rng, kind, h, w, place, image, category if rng.rand() < 0.9 else int(ids[-1])))
        for _ in range(rng.randint(90, 160) if kind == "many" and rng.rand() < 0.5 else rng.randint(0, 4)):
            place = rng.rand() * w, rng.rand() * h, 2 + rng.rand() * 15, 2 + rng.rand() * 15
            category = 9999 if rng.rand() < 0.02 else int(ids[rng.randint(len(ids))])
            dets.append(one_result(rng, kind, h, w, place, image, category))
    dets = [d for d in dets if d is not None]
    if kind == "empty":
        dets = []
    rng.shuffle(dets)
    gt = {"images": images, "annotations": anns, "categories": cats}
    if rng.rand() < 0.3:
        gt = {k: gt[k] for k in ("annotations", "categories", "images")}
    if rng.rand() < 0.5:
        gt["info"] = {}
    return gt, dets


def write(folder, name, value, **how):
    path = os.path.join(folder, name)
    with open(path, "w") as f:
        json.dump(value, f, **how)
    return path


def reference(gt_path, dt_path, kind):
    from pycocotools.coco import COCO
    from pycocotools.cocoeval import COCOeval
    with contextlib.redirect_stdout(io.StringIO()):
        gt = COCO(gt_path)
        with open(dt_path) as f:
            dets = json.load(f)
        dt = gt.loadRes(dets) if dets else COCO()
        if not dets:  # loadRes cannot take an empty list
            dt.dataset = {"images": gt.dataset["images"], "categories": gt.dataset["categories"], "annotations": []}
            dt.createIndex()
        e = COCOeval(gt, dt, kind)
        e.evaluate()
        e.accumulate()
        e.summarize()
    return e


def compare_one(samite, folder, seed, kind):
    """Number of doubles compared; raises when one differs."""
    gt, dets = make(seed, kind)
    gt_path = write(folder, "gt.json", gt, indent=1 if seed % 3 == 0 else None)
    dt_path = write(folder, "dt.json", dets)
    kinds = ["bbox"] if kind == "boxes" else ["segm"] if seed % 2 else ["bbox", "segm"]
    command = samite.split() + ["--gt", gt_path, "--dt", dt_path, "--iou", ",".join(kinds), "--json", "--arrays",
                                "--pycocotools-compat"]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        raise SystemExit("seed %d %s: samite failed: %s" % (seed, kind, run.stderr))
    got = json.loads(run.stdout)
    count = 0
    for name in kinds:
        e = reference(gt_path, dt_path, name)
        for key, want in (("stats", e.stats), ("precision", e.eval["precision"]), ("recall", e.eval["recall"]),
                          ("scores", e.eval["scores"])):
            have, want = np.array(got[name][key], dtype=float), np.asarray(want, dtype=float).reshape(-1)
            if have.shape != want.shape or not np.array_equal(have, want):
                bad = np.flatnonzero(have != want)[:5] if have.shape == want.shape else (have.shape, want.shape)
                raise SystemExit("seed %d kind %s: %s %s differs at %s: %s, expected %s (files in %s)" % (
                    seed, kind, name, key, bad, have[bad] if have.shape == want.shape else "", want[bad]
                    if have.shape == want.shape else "", folder))
            count += want.size
    return count


def compare(samite, count, first):
    total = 0
    folder = tempfile.mkdtemp()
    for i in range(first, first + count):
        total += compare_one(samite, folder, i, KINDS[i % len(KINDS)])
    print("%d files, %d doubles, all equal" % (count, total))


def phrases(seed):
    """(image, phrase) pairs for the SA-Co metric, with a second annotation of the same pairs."""
    rng = np.random.RandomState(seed)
    images, sets, dets = [], [[], []], []
    for n in range(1, rng.randint(3, 30)):
        h, w = int(rng.randint(20, 200)), int(rng.randint(20, 200))
        images.append({"id": n, "height": h, "width": w, "text_input": "p%d" % n})
        for _ in range(rng.randint(0, 6) if rng.rand() < 0.7 else 0):
            o = one_object(rng, "mixed", h, w, 2)
            if o is None:
                continue
            place = o.pop("place")
            for anns in sets:
                if rng.rand() < 0.85:
                    anns.append(dict(o, id=len(anns) + 1, image_id=n, category_id=1, iscrowd=int(rng.rand() < 0.05)))
            for _ in range(rng.randint(0, 3)):
                dets.append(one_result(rng, "both", h, w, place, n, 1))
        if rng.rand() < 0.3:
            dets.append(one_result(rng, "both", h, w, (w / 2, h / 2, 9, 9), n, 1))
    dets = [d for d in dets if d is not None]
    for d in dets:
        mask = d.get("segmentation")
        if not isinstance(mask, dict) or isinstance(mask["counts"], list):
            h, w = next((i["height"], i["width"]) for i in images if i["id"] == d["image_id"])
            x, y, bw, bh = d["bbox"]
            d["segmentation"] = text_rle(rle_of([[x, y, x, y + bh, x + bw, y + bh, x + bw, y]], h, w))
    files = []
    for anns in sets:
        files.append({"info": {}, "images": [dict(i, is_instance_exhaustive=bool(rng.rand() < 0.9)) for i in images],
                      "annotations": anns, "categories": [{"id": 1, "name": "object"}]})
    return files, dets


def cgf1(samite, count, first):
    from sam3.eval.cgf1_eval import CGF1Evaluator
    folder, total = tempfile.mkdtemp(), 0
    for seed in range(first, first + count):
        files, dets = phrases(seed)
        paths = [write(folder, "gt%d.json" % i, f) for i, f in enumerate(files)][:1 + seed % 2]
        dt = write(folder, "dt.json", dets)
        for kind in ("bbox", "segm"):
            with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
                want = CGF1Evaluator(gt_path=paths, iou_type=kind, verbose=False).evaluate(dt)
            command = samite.split() + ["--iou", kind, "--json", "--dt", dt]
            for p in paths:
                command += ["--cgf1", p]
            run = subprocess.run(command, capture_output=True, text=True)
            if run.returncode:
                raise SystemExit("seed %d: samite failed: %s" % (seed, run.stderr))
            have = json.loads(run.stdout)["cgf1_" + kind]
            if have != want:
                raise SystemExit("seed %d %s: %s" % (seed, kind, {k: (have.get(k), v) for k, v in want.items()
                                                                   if have.get(k) != v}))
            total += len(want)
    print("%d files, %d numbers, all equal" % (count, total))


def tracks(seed):
    """Objects moving through short videos, and tracks of them that drift, break off, swap and vanish."""
    rng = np.random.RandomState(seed)
    videos, anns, dets = [], [], []
    for v in range(rng.randint(1, 4)):
        h, w, n = int(rng.randint(30, 150)), int(rng.randint(30, 200)), int(rng.randint(1, 14))
        videos.append({"id": v + 5, "height": h, "width": w, "length": n, "name": "clip%d" % v})
        for _ in range(rng.randint(0, 5)):
            category, size = int(rng.randint(1, 3)), rng.uniform(4, 25, 2)
            start, speed = rng.rand(2) * (w, h), rng.randn(2) * 3
            from_, to = sorted(rng.randint(0, n + 1, 2)) if rng.rand() < 0.5 else (0, n)
            place = [start + speed * f for f in range(n)]

            def shape(f, off, scale):
                r = rle_of([blob(np.random.RandomState(seed), h, w, place[f][0] + off[0], place[f][1] + off[1],
                                 size[0] * scale, size[1] * scale)], h, w)
                return text_rle(r) if rle_area(r) else None
            anns.append({"id": len(anns) + 1, "video_id": v + 5, "category_id": category, "iscrowd": 0,
                         "segmentations": [shape(f, (0, 0), 1) if from_ <= f < to else None for f in range(n)]})
            if rng.rand() < 0.85:
                cut = rng.randint(0, n + 1)
                parts = [(0, cut), (cut, n)] if rng.rand() < 0.4 else [(0, n)]
                for a, b in parts:
                    masks = [shape(f, rng.randn(2) * 3, rng.uniform(0.7, 1.3)) if a <= f < b and rng.rand() < 0.9
                             else None for f in range(n)]
                    dets.append({"video_id": v + 5, "category_id": category, "score": float(rng.rand()),
                                 "segmentations": masks})
    rng.shuffle(dets)
    anns, dets = ([a for a in which if any(a["segmentations"]) or rng.rand() < 0.2] for which in (anns, dets))
    return {"videos": videos, "annotations": anns, "categories": [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}]}, dets


def rle_area(rle):
    from pycocotools import mask
    return int(mask.area(rle))


def video_reference(gt, dets):
    from pycocotools import mask
    from trackeval.metrics import HOTA, JAndF
    hota, jf = HOTA(), JAndF()
    all_hota, all_jf = {}, {}
    for v in gt["videos"]:
        for c in gt["categories"]:
            key = (v["id"], c["id"])
            g, d = ([a for a in which if (a["video_id"], a["category_id"]) == key and any(a["segmentations"])]
                    for which in (gt["annotations"], dets))  # TrackEval does not know objects that are never seen
            if not g and not d:
                continue
            data = {"num_timesteps": v["length"], "num_gt_ids": len(g), "num_tracker_ids": len(d), "seq": "s"}
            for name, which in (("gt", g), ("tracker", d)):
                data[name + "_ids"] = [np.array([i for i, a in enumerate(which) if a["segmentations"][f]], dtype=int)
                                       for f in range(v["length"])]
                data[name + "_dets"] = [[a["segmentations"][f] for a in which if a["segmentations"][f]]
                                        for f in range(v["length"])]
                data["num_%s_dets" % name] = sum(map(len, data[name + "_ids"]))
            data["similarity_scores"] = []
            for a, b in zip(data["gt_dets"], data["tracker_dets"]):
                iou = mask.iou(a, b, [False] * len(b))
                data["similarity_scores"].append(np.array(iou).reshape(len(a), len(b)))
            all_hota[key] = hota.eval_sequence(data)
            if g:
                all_jf[key] = jf.eval_sequence(dict(data))
    return hota.combine_sequences(all_hota) if all_hota else None, jf.combine_sequences(all_jf) if all_jf else None


def video(samite, count, first):
    folder, total, worst = tempfile.mkdtemp(), 0, 0.0
    for seed in range(first, first + count):
        gt, dets = tracks(seed)
        gt_path, dt_path = write(folder, "gt.json", gt), write(folder, "dt.json", dets)
        command = samite.split() + ["--video", "--gt", gt_path, "--dt", dt_path, "--json"]
        run = subprocess.run(command, capture_output=True, text=True)
        if run.returncode:
            raise SystemExit("seed %d: samite failed: %s" % (seed, run.stderr))
        got = json.loads(run.stdout)
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            hota, jf = video_reference(gt, dets)
        pairs = []
        for name in ("HOTA", "DetA", "AssA", "DetRe", "DetPr", "AssRe", "AssPr", "LocA", "OWTA"):
            if hota:
                pairs.append((name, got["video"][name], float(np.mean(hota[name]))))
                each = got["video_thresholds"]
                pairs += [(name, each["%s@%.2f" % (name, 0.05 + 0.05 * a)], float(hota[name][a])) for a in range(19)]
        for name in ("J&F", "J-Mean", "J-Recall", "J-Decay", "F-Mean", "F-Recall", "F-Decay"):
            if jf and name != "J&F":
                pairs.append((name, got["video"][name], float(jf[name])))
        for name, have, want in pairs:
            worst = max(worst, abs(have - want))
            if not abs(have - want) <= 1e-12:
                raise SystemExit("seed %d: %s is %r, expected %r (files in %s)" % (seed, name, have, want, folder))
        total += len(pairs)
    print("%d files, %d numbers, largest difference %g" % (count, total, worst))


def golden(folder):
    """Small files with the numbers of the reference programs: tracks, and two annotations of the same phrases."""
    from sam3.eval.cgf1_eval import CGF1Evaluator
    os.makedirs(folder, exist_ok=True)
    gt, dets = tracks(11)
    write(folder, "video_gt.json", gt)
    write(folder, "video_dt.json", dets)
    with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
        hota, jf = video_reference(gt, dets)
    names = ("HOTA", "DetA", "AssA", "DetRe", "DetPr", "AssRe", "AssPr", "LocA", "OWTA")
    numbers = {n: float(np.mean(hota[n])) for n in names}
    numbers.update({n: float(jf[n]) for n in ("J-Mean", "J-Recall", "J-Decay", "F-Mean", "F-Recall", "F-Decay", "J&F")})
    files, dets = phrases(9)
    paths = [write(folder, "oracle_gt%d.json" % (i + 1), f) for i, f in enumerate(files)]
    dt = write(folder, "oracle_dt.json", dets)
    oracle = {}
    for kind in ("bbox", "segm"):
        with contextlib.redirect_stdout(io.StringIO()), np.errstate(all="ignore"):
            oracle["cgf1_" + kind] = CGF1Evaluator(gt_path=paths, iou_type=kind, verbose=False).evaluate(dt)
    write(folder, "more_expected.json", {"video": numbers, "oracle": oracle})


def big(folder, images, objects, detections, masks, seed=0):
    """A set of the size of COCO's validation set."""
    rng = np.random.RandomState(seed)
    os.makedirs(folder, exist_ok=True)
    sizes = rng.randint(300, 640, (images, 2))
    share = rng.dirichlet(np.full(80, 0.4))
    gt_image, gt_cat = rng.randint(0, images, objects), rng.choice(80, objects, p=share)

    def boxes(image):
        wh = np.exp(rng.randn(len(image), 2) * 0.9 + 4).clip(2, 0.95 * sizes[image])
        xy = rng.rand(len(image), 2) * (sizes[image] - wh)
        return np.concatenate([xy, wh], 1)

    gt_box = boxes(gt_image)
    source = rng.randint(0, objects, detections)
    near = rng.rand(detections) < 0.4
    dt_image = np.where(near, gt_image[source], rng.randint(0, images, detections))
    dt_cat = np.where(near & (rng.rand(detections) < 0.9), gt_cat[source], rng.choice(80, detections, p=share))
    jitter = gt_box[source] * (1 + rng.randn(detections, 4) * 0.08)
    dt_box = np.where(near[:, None], np.abs(jitter), boxes(dt_image)).round(2)
    score = np.where(near, rng.beta(3, 2, detections), rng.beta(1, 8, detections)).round(5)

    def segmentation(box, image):
        if not masks:
            return None
        h, w = map(int, sizes[image][::-1])
        x, y, bw, bh = box
        return text_rle(rle_of([blob(rng, h, w, x + bw / 2, y + bh / 2, max(2, bw / 2), max(2, bh / 2))], h, w))

    anns = []
    for k in range(objects):
        a = {"id": k + 1, "image_id": int(gt_image[k]) + 1, "category_id": int(gt_cat[k]) + 1,
             "iscrowd": int(rng.rand() < 0.01), "bbox": gt_box[k].round(2).tolist(),
             "area": float((gt_box[k][2] * gt_box[k][3] * 0.7).round(2))}
        if masks:
            a["segmentation"] = segmentation(gt_box[k], gt_image[k])
        else:
            x, y, w, h = gt_box[k]
            a["segmentation"] = [blob(rng, 1000, 1000, x + w / 2, y + h / 2, w / 2, h / 2)]
        anns.append(a)
    dets = []
    for k in np.argsort(dt_image, kind="stable"):
        d = {"image_id": int(dt_image[k]) + 1, "category_id": int(dt_cat[k]) + 1, "bbox": dt_box[k].tolist(),
             "score": float(score[k])}
        if masks:
            d["segmentation"] = segmentation(dt_box[k], dt_image[k])
        dets.append(d)
    write(folder, "gt.json", {
        "info": {}, "images": [{"id": i + 1, "width": int(w), "height": int(h), "file_name": "%012d.jpg" % (i + 1)}
                               for i, (w, h) in enumerate(sizes)],
        "annotations": anns, "categories": [{"id": k + 1, "name": "class %d" % (k + 1)} for k in range(80)]})
    write(folder, "dt.json", dets)


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("what", choices=("make", "compare", "cgf1", "video", "golden", "big"))
    ap.add_argument("where", help="folder, or the program with its sub-command: \"samite eval\"")
    ap.add_argument("--seed", type=int, default=0)
    ap.add_argument("--kind", choices=KINDS, default="mixed")
    ap.add_argument("--count", type=int, default=110)
    ap.add_argument("--first", type=int, default=0)
    ap.add_argument("--images", type=int, default=5000)
    ap.add_argument("--objects", type=int, default=36000)
    ap.add_argument("--detections", type=int, default=500000)
    ap.add_argument("--masks", action="store_true")
    a = ap.parse_args()
    needed = {"cgf1": "sam3.eval.cgf1_eval", "video": "trackeval.metrics"}.get(a.what)
    try:
        import pycocotools.mask  # noqa: F401
        if needed:
            importlib.import_module(needed)
    except ImportError as e:
        print("skipped: %s" % e)
        return 77
    if a.what == "compare":
        compare(a.where, a.count, a.first)
    elif a.what == "cgf1":
        cgf1(a.where, a.count, a.first)
    elif a.what == "video":
        video(a.where, a.count, a.first)
    elif a.what == "golden":
        golden(a.where)
    elif a.what == "big":
        big(a.where, a.images, a.objects, a.detections, a.masks)
    else:
        os.makedirs(a.where, exist_ok=True)
        gt, dets = make(a.seed, a.kind)
        write(a.where, "gt.json", gt)
        write(a.where, "dt.json", dets)
    return 0


if __name__ == "__main__":
    sys.exit(main())
