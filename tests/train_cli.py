"""train_cli.py - `samite train` as users call it: dry run, Ctrl-C, several processes, merge. Arguments: program, data folder."""

import array
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zipfile

SAMITE, DATA = sys.argv[1:3]
COMMON = ["--data", DATA + "/instances.json", "--images", DATA, "-m", "formula:tiny", "-j", "1", "--set", "logging.report=false"]
os.environ["OMP_NUM_THREADS"] = "1"
checks = 0


def check(ok, what):
    global checks
    checks += 1
    if not ok:
        sys.exit("failed: " + what)


def run(*words, status=0, before=()):
    r = subprocess.run([*before, SAMITE, *words], capture_output=True, text=True)
    check(r.returncode == status, "%s: exit %d, expected %d\n%s" % (" ".join(words), r.returncode, status, r.stderr[-1000:]))
    return r.stdout + r.stderr


def numbers(path):
    """All tensors of a .pt file, one after the other."""
    out = array.array("f")
    with zipfile.ZipFile(path) as z:
        for name in z.namelist():
            if "/data/" in name:
                data = z.read(name)
                out.frombytes(data[:len(data) // 4 * 4])
    return out


def furthest(a, b):
    a, b = numbers(a), numbers(b)
    check(len(a) == len(b), "files of another size")
    return max(abs(x - y) for x, y in zip(a, b))


def dry_run(place):
    said = run("train", *COMMON, "--masks", "--dry-run", "--out", place + "/dry")
    for word in ("4 pictures", "3 prompts", "ball", "steps per epoch", "memory, about", "rows: 0 rejected"):
        check(word in said, "dry run does not say %r:\n%s" % (word, said))
    check(not os.path.exists(place + "/dry"), "a dry run writes files")
    check("trainer.max_epochs" in run("train", "--settings"), "settings are not listed")


def mistakes(place):
    check("did you mean" in run("train", *COMMON, "--set", "trainer.max_epoch=3", status=2), "no suggestion")
    check("lower" in run("train", *COMMON, "--batch", "9", "--out", place + "/x", status=2), "no step")
    run("train", status=2)
    run("train", "/nowhere.yaml", status=3)


def interrupted(place):
    out = place + "/stopped"
    words = [SAMITE, "train", *COMMON, "--epochs", "400", "--out", out]
    p = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while p.poll() is None and not os.path.exists(out + "/logs/steps.jsonl"):
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    said = p.communicate()[1]
    check(p.returncode == 130, "Ctrl-C: exit %d\n%s" % (p.returncode, said))
    check("--resume" in said, "Ctrl-C does not say how to go on")
    check(os.path.exists(out + "/checkpoints/latest.json"), "Ctrl-C saves nothing")


def processes(place):
    if not shutil.which("mpirun") or not mpi_built():
        print("several processes: not tested, no MPI")
        return
    more = ["--epochs", "2", "--masks", "--set", "lr=8e-4"]
    run("train", *COMMON, *more, "--batch", "2", "--out", place + "/one")
    run("train", *COMMON, *more, "--batch", "1", "--out", place + "/two",
        before=["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"])
    far = furthest(place + "/one/checkpoints/checkpoint_2.pt", place + "/two/checkpoints/checkpoint_2.pt")
    check(far < 1e-5, "two processes differ from one by %g" % far)


def mpi_built():
    r = subprocess.run([SAMITE, "train", *COMMON, "--set", "backend=mpi", "--dry-run"], capture_output=True, text=True)
    return r.returncode == 0


def validation(place):
    said = run("train", *COMMON, "--epochs", "1", "--out", place + "/val", "--val", DATA + "/instances.json", "--val-images", DATA,
               "--set", "logging.report=true")
    check("before training: box AP" in said and "validation after epoch 1" in said, "both scores are told:\n" + said)
    for name in ("report.html", "logs/val_stats.json", "logs/train_stats.json", "config_resolved.yaml", "checkpoints/checkpoint_1.pt"):
        check(os.path.getsize(place + "/val/" + name) > 0, name)
    with open(place + "/val/logs/val_stats.json") as f:
        check("Meters_train/val_roboflow100/detection/coco_eval_bbox_AP_50" in f.read(), "official keys")
    check("SAM 3" in run("info", "-m", place + "/val/checkpoints/checkpoint_1.pt"), "the result loads")


def main():
    place = tempfile.mkdtemp()
    try:
        for part in (dry_run, mistakes, interrupted, processes, validation):
            part(place)
    finally:
        shutil.rmtree(place)
    print("%d checks passed" % checks)


main()
