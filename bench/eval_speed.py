"""Times `samite eval` against faster-coco-eval (and pycocotools) on a made-up set of the size of COCO's validation set.

    eval_speed.py SAMITE [--masks] [--folder DIR] [--repeats N] [--pycocotools]

Prints processor seconds, wall seconds and peak memory of whole programs, best of the repeats, and whether the twelve
numbers agree. Needs numpy, pycocotools, faster-coco-eval.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
FIXTURES = os.path.join(HERE, "..", "tools", "reference", "make_eval_fixtures.py")

PROGRAM = """
import contextlib, io, json, sys
gt, dt, kind = sys.argv[1:]
with contextlib.redirect_stdout(io.StringIO()):
    %s
    gt = COCO(gt)
    e = Evaluator(gt, gt.loadRes(dt), kind)
    e.evaluate()
    e.accumulate()
    e.summarize()
print(json.dumps([float(v) for v in e.stats[:12]]))
"""
IMPORTS = {"faster-coco-eval": "from faster_coco_eval import COCO, COCOeval_faster as Evaluator",
           "pycocotools": "from pycocotools.coco import COCO; from pycocotools.cocoeval import COCOeval as Evaluator"}


def run(command):
    """Processor seconds, wall seconds, peak MB, standard output."""
    start = time.monotonic()
    p = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    out = p.stdout.read()
    _, status, usage = os.wait4(p.pid, 0)
    if status:
        raise SystemExit("%s failed" % command[0])
    return usage.ru_utime + usage.ru_stime, time.monotonic() - start, usage.ru_maxrss / 1024, out.decode()


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("samite")
    ap.add_argument("--masks", action="store_true")
    ap.add_argument("--folder", help="where the files are, or will be; default: a temporary folder")
    ap.add_argument("--repeats", type=int, default=3)
    ap.add_argument("--pycocotools", action="store_true")
    a = ap.parse_args()
    folder = a.folder or tempfile.mkdtemp()
    gt, dt = os.path.join(folder, "gt.json"), os.path.join(folder, "dt.json")
    if not os.path.exists(dt):
        subprocess.run([sys.executable, FIXTURES, "big", folder] + ["--masks"] * a.masks, check=True)
    kind = "segm" if a.masks else "bbox"
    commands = {"samite": [a.samite, "eval", "--gt", gt, "--dt", dt, "--iou", kind, "--json", "-q"]}
    for name in ["faster-coco-eval"] + ["pycocotools"] * a.pycocotools:
        commands[name] = [sys.executable, "-c", PROGRAM % IMPORTS[name], gt, dt, kind]
    stats = {}
    for name, command in commands.items():
        runs = [run(command) for _ in range(a.repeats)]
        text = runs[0][3]
        if name == "samite":
            stats[name] = json.loads(text)[kind]["stats"]
        else:
            stats[name] = json.loads(re.search(r"\[.*\]", text).group())
        print("%-18s %7.2f s processor  %7.2f s wall  %6.0f MB" % (
            name, min(r[0] for r in runs), min(r[1] for r in runs), max(r[2] for r in runs)))
    for name, s in stats.items():
        if name != "samite":
            print("%s: %s" % (name, "the same twelve numbers" if s == stats["samite"] else
                              "largest difference %g" % max(abs(x - y) for x, y in zip(s, stats["samite"]))))


if __name__ == "__main__":
    main()
