#!/usr/bin/env python3
"""Times optimizer steps beside PyTorch in one run: samite train and the official fine-tuning code by turns.

    python3 bench/train.py --samite build/samite --python ref/bin/python --reference train.py --bpe BPE_VOCAB.txt.gz
    python3 bench/train.py ... --only small-masks full-heads --threads 2 --rounds 1 --steps 2

One picture with three prompts and four objects per step, formula weights, dropout as officially (--no-dropout leaves it
out). --reference is the script that drives the official training (data, losses, optimizer as configured there), run by
--python; both are in the tree that made the golden numbers. Every measurement is a process of its own: a first step that
does not count, then --steps more. Printed are medians over the steps of all rounds: seconds, processor seconds, largest
resident size, and PyTorch's as a multiple of samite's. PyTorch keeps the blocks or computes them twice as its code does.
"""

import argparse
import importlib.util
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time

#        name            preset   masks  parts that do not learn
CASES = {"tiny-boxes": ("tiny", False, ""), "tiny-masks": ("tiny", True, ""),
         "small-boxes": ("small", False, ""), "small-masks": ("small", True, ""),
         "small-heads": ("small", True, "trunk,text"), "full-heads": ("full", True, "trunk,text"),
         "full-heads-boxes": ("full", False, "trunk,text")}
FROZEN = {"trunk": "backbone.vision_backbone.trunk.", "text": "backbone.language_backbone."}
PICTURE = 8         # three prompts, all of them positive


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


# ---- PyTorch, in a process of its own ----

def load_script(path):
    import torch  # noqa: F401  before the script turns TorchScript off for itself
    sys.path.insert(0, os.path.dirname(os.path.abspath(path)))
    spec = importlib.util.spec_from_file_location("reference_train", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def one_picture(t, folder):
    """The script's pictures, and an instances JSON of one of them."""
    t.draw(folder, 1)
    path = os.path.join(folder, "instances.json")
    with open(path) as f:
        doc = json.load(f)
    doc["images"] = [i for i in doc["images"] if i["id"] == PICTURE]
    doc["annotations"] = [a for a in doc["annotations"] if a["image_id"] == PICTURE]
    with open(path, "w") as f:
        json.dump(doc, f)


def pytorch(a):
    t = load_script(a.reference)
    import torch
    torch.set_num_threads(a.threads)
    t.dist.init_process_group("gloo", store=t.dist.HashStore(), rank=0, world_size=1)
    one_picture(t, a.data)
    if not a.steps:
        return
    preset, masks, freeze = CASES[a.case]
    c, loss = t.ref.PRESETS[preset], t.criterion(masks)
    if a.dropout:
        t.quiet = lambda model: model.train()
    data, model, watch = t.dataset(c, a.data, masks), t.build(c, a.bpe, 0, masks), t.Watch()
    for name, p in model.named_parameters():
        p.requires_grad_(not any(name.startswith(FROZEN[f]) for f in freeze.split(",") if f))
    optim, _ = t.optimiser(model, 0.1, 20)
    clip, spent = t.GradientClipper(max_norm=0.1, norm_type=2), []
    for s in range(1 + a.steps):
        wall, cpu = time.perf_counter(), time.process_time()
        b, _ = t.batch(data, watch, [0], s, masks)
        optim.zero_grad(set_to_none=True)
        with torch.autocast("cpu", torch.bfloat16, enabled=a.precision == "bf16"):
            stages = model(b)
            losses = loss(stages, [model.back_convert(x) for x in b.find_targets])
        losses["core_loss"].backward()
        optim.step_schedulers(s / 1000, step=s)
        clip(model)
        optim.optimizer.step()
        spent.append((time.perf_counter() - wall, time.process_time() - cpu))
    print(json.dumps({"steps": spent[1:], "peak": peak(), "loss": float(losses["core_loss"])}))


# ---- turns ----

def run_pytorch(a, case, folder):
    command = [a.python, os.path.abspath(__file__), "--pytorch", "--case", case, "--data", folder, "--bpe", a.bpe]
    command += ["--reference", a.reference, "--threads", str(a.threads), "--steps", str(a.steps)]
    command += ["--precision", a.precision] + ([] if a.dropout else ["--no-dropout"])
    done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, OMP_NUM_THREADS=str(a.threads)))
    if done.returncode:
        last = done.stderr.strip().splitlines()[-1:] or ["killed: out of memory?"]
        return {"error": last[0]}
    return json.loads(done.stdout.strip().splitlines()[-1])


def run_samite(a, case, folder):
    preset, masks, freeze = CASES[case]
    with tempfile.TemporaryDirectory() as out:
        command = [a.samite, "train", "--data", os.path.join(folder, "instances.json"), "--images", folder]
        command += ["-m", a.model or "formula:" + preset, "--epochs", str(1 + a.steps), "--out", os.path.join(out, "run")]
        command += ["-j", str(a.threads), "-q", "--set", "precision=" + a.precision]
        for s in ["skip_saving_ckpts=true", "report=false", "tensorboard=false"] + a.set:
            command += ["--set", s]
        command += ["--masks"] if masks else []
        command += ["--freeze", freeze] if freeze else []
        command += [] if a.dropout else ["--set", "dropout=0", "--set", "drop_path=0"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return {"error": (done.stderr.strip().splitlines() or ["?"])[-1]}
        with open(os.path.join(out, "run", "logs", "steps.jsonl")) as f:
            rows = [json.loads(line) for line in f]
    return {"steps": [(1 / r["images_per_s"], r["cpu_s"]) for r in rows[1:]], "peak": rows[-1]["memory_bytes"],
            "loss": rows[-1]["core_loss"]}


def shown(name, runs):
    bad = [r["error"] for r in runs if "error" in r]
    if bad or not runs:
        return None, "%s: %s" % (name, bad[0] if bad else "not run")
    steps = [s for r in runs for s in r["steps"]]
    m = [statistics.median(s[i] for s in steps) for i in (0, 1)] + [max(r["peak"] for r in runs) / 1e9]
    return m, "%s %.3f s (cpu %.3f s), %.2f GB" % (name, *m)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--samite", default="build/samite")
    ap.add_argument("--python", help="a Python with torch and the package sam3; without it only samite runs")
    ap.add_argument("--reference", required=True, help="the script that drives the official training")
    ap.add_argument("--bpe", default="")
    ap.add_argument("--model", help="file to train in place of the formula (samite only)")
    ap.add_argument("--only", nargs="*", default=["tiny-boxes", "tiny-masks", "small-boxes", "small-masks"],
                    choices=sorted(CASES))
    ap.add_argument("--threads", type=int, default=1)
    ap.add_argument("--steps", type=int, default=3)
    ap.add_argument("--rounds", type=int, default=1)
    ap.add_argument("--precision", default="f32", choices=["f32", "bf16"], help="of both; PyTorch by autocast")
    ap.add_argument("--no-dropout", dest="dropout", action="store_false")
    ap.add_argument("--set", action="append", default=[], help="a setting for samite train; repeatable")
    ap.add_argument("--data", help=argparse.SUPPRESS)
    ap.add_argument("--case", help=argparse.SUPPRESS)
    ap.add_argument("--pytorch", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.pytorch:
        return pytorch(a)
    with tempfile.TemporaryDirectory() as folder:
        maker = a.python or sys.executable
        made = subprocess.run([maker, os.path.abspath(__file__), "--pytorch", "--data", folder, "--reference",
                               a.reference, "--steps", "0"], capture_output=True, text=True)
        if made.returncode:
            sys.exit("no data: " + made.stderr.strip())
        for case in a.only:
            ours, theirs = [], []
            for _ in range(a.rounds):
                ours.append(run_samite(a, case, folder))
                if a.python:
                    theirs.append(run_pytorch(a, case, folder))
            m, line = shown("samite", ours)
            n, other = shown("pytorch", theirs)
            ratio = "; x%.2f time, x%.2f cpu, x%.2f memory" % tuple(y / x for x, y in zip(m, n)) if m and n else ""
            print("%-12s %s | %s%s" % (case, line, other, ratio), flush=True)


if __name__ == "__main__":
    main()
