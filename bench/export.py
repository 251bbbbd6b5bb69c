"""export.py - time, memory and file sizes of an export.

Usage: export.py SAMITE MODEL FOLDER     writes all parts of MODEL into FOLDER
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


def main():
    samite, model, folder = sys.argv[1:]
    seconds, anonymous, whole = export(samite, model, folder)
    print("export: %.1f s, %.0f MiB beside the mapped weights, %.0f MiB with them" % (seconds, anonymous, whole))
    for name in sorted(os.listdir(folder)):
        print("%-32s %8.1f MiB" % (name, os.path.getsize(os.path.join(folder, name)) / 2**20))


main()
