"""export.py - time and memory of an export, and speed of the exported image encoder in ONNX Runtime.

Usage: export.py SAMITE MODEL FOLDER [OTHER.onnx]
Writes all parts of MODEL into FOLDER. Needs numpy and onnxruntime for the speed. OTHER is an image encoder of the same size
to be timed beside ours, in turns; "-" leaves the speed out.
"""
import os
import subprocess
import sys
import time

PARTS = "image,text,grounding,click,memory"


def export(samite, model, folder):
    """Seconds, largest anonymous and largest whole resident memory."""
    start, anonymous, whole = time.time(), 0, 0
    p = subprocess.Popen([samite, "export", "onnx", "-m", model, "--out", folder, "--parts", PARTS, "-q"])
    while p.poll() is None:
        try:
            with open("/proc/%d/status" % p.pid) as f:
                kb = {k: int(v.split()[0]) for k, v in (line.split(":", 1) for line in f) if k in ("RssAnon", "VmHWM")}
            anonymous, whole = max(anonymous, kb.get("RssAnon", 0)), max(whole, kb.get("VmHWM", 0))
        except (OSError, ValueError):
            pass
        time.sleep(0.02)
    if p.returncode:
        sys.exit(p.returncode)
    return time.time() - start, anonymous / 1024, whole / 1024


def speed(paths, rounds=2):
    """The best seconds of each file, all in turns, so that what else the machine does meets all of them."""
    import numpy as np
    import onnxruntime
    best = [float("inf")] * len(paths)
    for turn in range(rounds):
        for i, path in enumerate(paths):
            s = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
            feed = {s.get_inputs()[0].name: np.zeros(s.get_inputs()[0].shape, np.float32)}
            start = time.process_time(), time.time()
            s.run(None, feed)
            best[i] = min(best[i], time.time() - start[1])
            print("turn %d %s: %.1f s, %.1f s of processor time" % (turn, path, time.time() - start[1],
                                                                    time.process_time() - start[0]))
            del s
    return best


def main():
    samite, model, folder, others = sys.argv[1], sys.argv[2], sys.argv[3], sys.argv[4:]
    seconds, anonymous, whole = export(samite, model, folder)
    print("export: %.1f s, %.0f MiB beside the mapped weights, %.0f MiB with them" % (seconds, anonymous, whole))
    for name in sorted(os.listdir(folder)):
        print("%-32s %8.1f MiB" % (name, os.path.getsize(os.path.join(folder, name)) / 2**20))
    if others != ["-"]:
        speed([os.path.join(folder, "image_encoder.onnx")] + others)


main()
