"""train_cli.py - `samite train` as users call it: dry run, Ctrl-C, several processes, merge. Arguments: program, data folder."""

import array
import json
import os
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile

SAMITE, DATA = sys.argv[1:3]
COMMON = ["--data", DATA + "/instances.json", "--images", DATA, "-m", "formula:tiny", "-j", "1", "--set", "logging.report=false"]
os.environ["OMP_NUM_THREADS"] = "1"
TWO = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-np", "2"]
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


def sprites(path):
    """A sprite file of two names, plain squares."""
    header, data = {}, b""
    for k, name in enumerate(("dog", "cat")):
        for i in range(3):
            pixels = bytes([80 * k + 10 * i + 40, 200 - 60 * k, 40 * i, 255]) * (32 * 32)
            header["%s%s/%d" % ("held/" if i == 2 else "", name, i)] = {
                "dtype": "U8", "shape": [32, 32, 4], "data_offsets": [len(data), len(data) + len(pixels)]}
            data += pixels
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text + data)


def configs(place):
    """Every ready configuration is taken, and what a run saves of it means the same again."""
    folder = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "configs")
    names = sorted(os.listdir(folder))
    check(len(names) >= 10, "configurations are missing")
    sprites(place + "/sprites.safetensors")
    scenes = ["-m", "formula:tiny", "-j", "1", "--set", "scenes=" + place + "/sprites.safetensors"]
    for name in names:
        more = scenes if name.startswith("demo_") else COMMON
        said = run("train", os.path.join(folder, name), *more, "--dry-run", "--out", place + "/dry")
        check("steps per epoch" in said and "memory, about" in said, name)
        check(not os.path.exists(place + "/dry"), "a dry run of %s writes files" % name)
    words = [*COMMON, "--epochs", "1", "--set", "optim.lr_transformer=3e-5", "--set", "skip_saving_ckpts=true"]
    run("train", os.path.join(folder, "with_masks.yaml"), *words, "--out", place + "/first")
    run("train", place + "/first/config_resolved.yaml", "--out", place + "/second")
    one, two = (open(place + d + "/config_resolved.yaml").read() for d in ("/first", "/second"))
    check(float(re.search("lr_transformer: (.*)", one)[1]) == 3e-5, "the resolved file lacks what --set said")
    check(one.replace("/first", "") == two.replace("/second", ""), "the resolved file means something else")
    first, second = (json.loads(open(place + d + "/logs/train_stats.json").readline()) for d in ("/first", "/second"))
    check(first == second and len(first) > 30, "a run from the resolved file is another one")


def tensors(path):
    """Tensors of a safetensors file in f32 by name, with their shapes."""
    with open(path, "rb") as f:
        data = f.read()
    size = struct.unpack("<Q", data[:8])[0]
    for name, t in json.loads(data[8:8 + size]).items():
        if name != "__metadata__":
            check(t["dtype"] == "F32", name + " is not f32")
            begin, end = t["data_offsets"]
            yield name, t["shape"], array.array("f", data[8 + size + begin:8 + size + end])


def merged_layer(base, merged, down, up, scale):
    """Furthest that merged is from base + scale * up down, and how far the change goes."""
    (rank, inner), a = down
    (outer, _), b = up
    far = change = 0
    for i in range(outer):
        for j in range(inner):
            add = scale * sum(b[i * rank + k] * a[k * inner + j] for k in range(rank))
            far = max(far, abs(base[i * inner + j] + add - merged[i * inner + j]))
            change = max(change, abs(add))
    return far, change


def merge(place):
    """What `samite merge` writes is base + alpha / rank * up down, and the base where there is no adapter."""
    base, out, result = place + "/base.safetensors", place + "/lora", place + "/merged.safetensors"
    run("start", "--size", "tiny", "--seed", "3", "-o", base)
    run("train", *COMMON, "-m", base, "--lora", "2", "--set", "alpha=3", "--epochs", "3", "--set", "lr_transformer=1e-2",
        "--set", "lr_vision_backbone=1e-2", "--set", "lr_language_backbone=1e-2", "--out", out)
    adapter = out + "/checkpoints/checkpoint_3.adapter.safetensors"
    run("merge", base, adapter, "-o", result)
    parts = {name: (shape, data) for name, shape, data in tensors(adapter)}
    before, after = ({n: d for n, _, d in tensors(p)} for p in (base, result))
    check(sorted(before) == sorted(after), "other tensors than before")
    layers = sorted({n.rsplit(".lora_", 1)[0] for n in parts})
    check(len(layers) * 2 == len(parts) and len(layers) > 50, "layers of the adapter")
    touched = set()
    for layer in layers:
        name, first = layer + ".weight", 0
        if name not in before:      # the three projections of an attention are rows of one tensor
            stem, part = re.fullmatch(r"(.*in_proj)(?:_([qkv]))?", layer).groups()
            name = stem + "_weight"
            first = "qkv".index(part or "q")
        touched.add(name)
        down, up = parts[layer + ".lora_A.weight"], parts[layer + ".lora_B.weight"]
        size = down[0][1] * up[0][0]
        piece = slice(first * size, (first + 1) * size)
        far, change = merged_layer(before[name][piece], after[name][piece], down, up, 3 / 2)
        check(far < 1e-6, "%s: merged weights are off by %g" % (layer, far))
        check(change > 1e-5 or not any(up[1]), "%s: the adapter changes nothing" % layer)
    check(all(before[n] == after[n] for n in before if n not in touched), "a tensor without adapter changed")


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


def interrupted_twice(place):
    """A step of many seconds; the second Ctrl-C does not wait for it."""
    out = place + "/twice"
    words = [SAMITE, "train", *COMMON, "--resolution", "1008", "--batch", "4", "--out", out]
    p = subprocess.Popen(words, stderr=subprocess.PIPE, text=True)
    while p.poll() is None and not os.path.exists(out + "/tensorboard"):
        time.sleep(0.01)
    p.send_signal(signal.SIGINT)
    time.sleep(0.05)
    check(p.poll() is None, "the first Ctrl-C does not let the step end")
    p.send_signal(signal.SIGINT)
    p.communicate()
    check(p.returncode in (-signal.SIGINT, 130), "second Ctrl-C: exit %d" % p.returncode)
    check(not os.path.exists(out + "/logs/steps.jsonl"), "the second Ctrl-C waits for the step")


def not_enough_memory(place):
    """More prompts at once than any machine has room for; said by the dry run, and before the first step."""
    with open(DATA + "/instances.json") as f:
        doc = json.load(f)
    doc["categories"] += [dict(id=100 + i, name="thing %d" % i) for i in range(400)]
    with open(place + "/many.json", "w") as f:
        json.dump(doc, f)
    words = [*COMMON, "--data", place + "/many.json", "--masks", "--resolution", "3584", "--set", "prompts_per_pass=0"]
    check("will not fit" in run("train", *words, "--dry-run"), "a dry run does not foresee that memory is short")
    check("will not fit" not in run("train", *COMMON, "--dry-run"), "memory is short for no reason")
    p = subprocess.Popen([SAMITE, "train", *words, "--out", place + "/short"], stderr=subprocess.PIPE, text=True)
    said = p.stderr.readline()
    p.kill()
    p.communicate()
    check("it may run out of memory" in said, "a training does not foresee that memory is short: " + said)


def processes(place):
    if not shutil.which("mpirun") or not mpi_built():
        print("several processes: not tested, no MPI")
        return
    more = ["--epochs", "2", "--masks", "--set", "lr=8e-4"]
    run("train", *COMMON, *more, "--batch", "2", "--out", place + "/one")
    run("train", *COMMON, *more, "--batch", "1", "--out", place + "/two",
        before=TWO)
    far = furthest(place + "/one/checkpoints/checkpoint_2.pt", place + "/two/checkpoints/checkpoint_2.pt")
    check(far < 1e-5, "two processes differ from one by %g" % far)
    one, two = ([json.loads(line) for line in open(place + d + "/logs/steps.jsonl")] for d in ("/one", "/two"))
    check(len(one) == len(two) == 4, "steps of one and of two processes")
    for a, b in zip(one, two):     # losses are divided by the number of boxes of all processes
        for name in a:
            if "loss" in name or name == "grad_norm":
                check(abs(a[name] - b[name]) <= 1e-4 * abs(a[name]) + 1e-6, "%s: %g, %g" % (name, a[name], b[name]))


def start_two(out, *more):
    return subprocess.Popen([*TWO, SAMITE, "train", *COMMON, "--out", out, *more], stderr=subprocess.PIPE,
                            stdout=subprocess.DEVNULL, text=True)


def process_of(rank, launcher):
    """The id of a process that the launcher started."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/stat" % pid) as f:
                parent = int(f.read().rsplit(")", 1)[1].split()[1])
            with open("/proc/%s/environ" % pid, "rb") as f:
                ours = b"OMPI_COMM_WORLD_RANK=%d" % rank in f.read().split(b"\0")
        except OSError:
            continue
        if parent == launcher and ours:
            return int(pid)


def processes_that_die(place):
    if not shutil.which("mpirun") or not mpi_built():
        return
    out = place + "/killed"
    p = start_two(out, "--epochs", "4000")
    while p.poll() is None and not os.path.exists(out + "/logs/steps.jsonl"):
        time.sleep(0.01)
    os.kill(process_of(1, p.pid), signal.SIGKILL)
    said = p.communicate()[1]
    check(p.returncode != 0 and "rank 1" in said and "signal 9" in said, "a killed process ends all:\n" + said)

    pictures = place + "/some"
    shutil.copytree(DATA, pictures)
    os.remove(pictures + "/000008.png")
    p = start_two(place + "/lacking", "--images", pictures, "--epochs", "2")
    said = p.communicate()[1]
    check(p.returncode != 0 and "000008.png" in said and re.search("process [01] of 2: .*all processes end", said),
          "a process that fails says why and ends all:\n" + said)


def mpi_built():
    r = subprocess.run([SAMITE, "train", *COMMON, "--set", "backend=mpi", "--dry-run"], capture_output=True, text=True)
    return r.returncode == 0


def checksum(data):
    """As TFRecord has it: CRC-32C, turned and moved."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def varint(data, at):
    value = shift = 0
    while True:
        value |= (data[at] & 127) << shift
        at, shift = at + 1, shift + 7
        if data[at - 1] < 128:
            return value, at


def fields(data):
    """Fields of a protobuf message: number, and what it holds."""
    at = 0
    while at < len(data):
        key, at = varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = varint(data, at)
        else:
            size, at = varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value, at = data[at:at + size], at + size
        yield key >> 3, value
    check(at == len(data), "a message is cut")


def events(folder):
    """{(tag, step): number} of the event file of a run; lengths and contents have their checksums."""
    (name,) = os.listdir(folder)
    with open(folder + "/" + name, "rb") as f:
        data = f.read()
    found, first, at = {}, True, 0
    while at < len(data):
        size, crc = struct.unpack("<QI", data[at:at + 12])
        event, end = data[at + 12:at + 12 + size], at + 16 + size
        check(checksum(data[at:at + 8]) == crc, "checksum of a length")
        check((checksum(event),) == struct.unpack("<I", data[end - 4:end]), "checksum of an event")
        e = dict(fields(event))
        check(abs(struct.unpack("<d", e[1])[0] - time.time()) < 3600, "time of an event")
        if first:
            check(e[3] == b"brain.Event:2", "the first event tells the version")
        else:
            value = dict(fields(dict(fields(e[5]))[1]))
            key, (number,) = (value[1].decode(), e.get(2, 0)), struct.unpack("<f", value[2])
            check(found.setdefault(key, number) == number, "%s at step %d means two things" % key)
        first, at = False, end
    return found


def event_files(place):
    """Every number of the JSON lines stands in the event file, at its step, and no other."""
    out = place + "/events"
    run("train", *COMMON, "--masks", "--epochs", "2", "--out", out, "--val", DATA + "/instances.json", "--val-images", DATA,
        "--set", "skip_saving_ckpts=true")
    found, expected = events(out + "/tensorboard"), {}
    for name in os.listdir(out + "/logs"):
        prefix = "Step_Losses/train/" if name == "steps.jsonl" else ""
        with open(out + "/logs/" + name) as f:
            lines = [json.loads(line) for line in f]
        for i, line in enumerate(lines):     # scored before the first step and after the last, the eighth
            step = 8 * i if name == "val_stats.json" else line.get("step", line.get("Trainer/steps_train"))
            for key, value in line.items():
                if key != "step" and isinstance(value, (int, float)):
                    expected[prefix + key, step] = value
    check(len(expected) > 300 and sorted(found) == sorted(expected), "tags or steps of the event file differ: %s"
          % sorted(set(found) ^ set(expected))[:8])
    for key, value in expected.items():
        check(found[key] == struct.unpack("<f", struct.pack("<f", value))[0], "%s: %g, not %g" % (key, found[key], value))


def report(path, pictures):
    """The page needs no other file, and has a curve of every layer."""
    with open(path) as f:
        page = f.read()
    check(page.count("src=\"data:image/jpeg;base64,") == pictures, "pictures of the report")
    check(not re.search(r"(src|href)=\"(?!data:)", page), "the report needs other files")
    folded = page[page.index("<details>"):page.index("</details>")]
    for title in ("last layer, one-to-many half", "layer 1", "layer 1, one-to-many half"):
        check("<figcaption>%s</figcaption>" % title in folded, "no curves of " + title)
    check("loss_giou_aux_0_o2m" in folded and "loss_giou_aux_0" not in page.replace(folded, ""), "curves of other layers")


def validation(place):
    said = run("train", *COMMON, "--epochs", "1", "--out", place + "/val", "--val", DATA + "/instances.json", "--val-images", DATA,
               "--set", "logging.report=true")
    check("before training: box AP" in said and "validation after epoch 1" in said, "both scores are told:\n" + said)
    report(place + "/val/report.html", 4)
    for name in ("logs/val_stats.json", "logs/train_stats.json", "config_resolved.yaml", "checkpoints/checkpoint_1.pt"):
        check(os.path.getsize(place + "/val/" + name) > 0, name)
    with open(place + "/val/logs/val_stats.json") as f:
        lines = [json.loads(line) for line in f]
    check("Meters_train/val_roboflow100/detection/coco_eval_bbox_AP_50" in lines[-1], "official keys")
    check([line["Trainer/steps_val"] for line in lines] == [4, 8], "batches of validation so far")
    check("SAM 3" in run("info", "-m", place + "/val/checkpoints/checkpoint_1.pt"), "the result loads")


def main():
    place = tempfile.mkdtemp()
    try:
        for part in (dry_run, configs, merge, mistakes, interrupted, interrupted_twice, not_enough_memory, processes,
                     processes_that_die, validation, event_files):
            part(place)
    finally:
        shutil.rmtree(place)
    print("%d checks passed" % checks)


main()
