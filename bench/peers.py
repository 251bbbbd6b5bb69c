#!/usr/bin/env python3
"""Times other engines beside samite in one run: the same weights, picture, words and number of threads.

    python3 -m venv peers && peers/bin/pip install openvino onnxruntime nncf onnx
    samite export onnx -m sam3.pt --out parts
    peers/bin/python bench/peers.py prepare --parts parts              # 8-bit models for the peers, once
    peers/bin/python bench/peers.py run --samite build/samite --model sam3.pt --parts parts
    peers/bin/python bench/peers.py list                               # names for --only

Every engine runs in a process of its own, one after the other: seconds to load, to encode the picture, to encode the
words, to ground them (all 200 masks), best of --repeats; largest resident size; and the cosine of the coarsest level
with that of the first f32 engine of the run. PyTorch takes part when --pytorch names a Python that has what
bench/pytorch.py needs. The picture has the size the network sees, so that nobody's resizing counts.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

PARTS = ("image_encoder", "text_encoder", "grounding_head")
# "a yellow school bus" as the network reads it, then padding
WORDS, TOKENS = "a yellow school bus", (49406, 320, 4481, 1228, 2840, 49407)

PEERS = {
    "samite-f32": ("samite", "f32"), "samite-bf16": ("samite", "bf16"), "samite-int8": ("samite", "int8"),
    "pytorch-f32": ("pytorch", "f32"), "pytorch-bf16": ("pytorch", "bf16"),
    "openvino-f32": ("openvino", "f32"), "openvino-bf16": ("openvino", "bf16"),
    "openvino-w8": ("openvino", "w8"), "openvino-w8a8": ("openvino", "w8a8"),
    "onnxruntime-f32": ("onnxruntime", "f32"), "onnxruntime-int8": ("onnxruntime", "int8"),
}


def picture(side):
    """Soft waves and a chequerboard, as samite bench makes them up; [side, side, 3] in 0..255."""
    import numpy as np
    y, x = np.mgrid[0:side, 0:side]
    return np.stack([x * 255 // side, y * 255 // side, (x // 63 + y // 63) % 2 * 255], -1).astype(np.uint8)


def write_ppm(path, rgb):
    with open(path, "wb") as f:
        f.write(b"P6\n%d %d\n255\n" % (rgb.shape[1], rgb.shape[0]) + rgb.tobytes())


def network_input(rgb):
    import numpy as np
    return np.ascontiguousarray((rgb.astype(np.float32) / 127.5 - 1).transpose(2, 0, 1)[None])


def token_ids(length):
    import numpy as np
    return np.array([(list(TOKENS) + [0] * length)[:length]], np.int64)


def best(repeats, work):
    spent = []
    for _ in range(repeats):
        start = time.perf_counter()
        out = work()
        spent.append(time.perf_counter() - start)
    return min(spent), out


def level(values):
    """The coarsest level as [tokens, channels]."""
    return values.reshape(values.shape[1], -1).T


# ---- the engines; each returns {part: callable(dict of arrays) -> dict of arrays} and has .side and .prompt ----

def openvino_parts(a, kind):
    import openvino as ov
    core = ov.Core()
    settings = {"INFERENCE_NUM_THREADS": a.threads, "NUM_STREAMS": 1, "PERFORMANCE_HINT": "LATENCY",
                "INFERENCE_PRECISION_HINT": "f32" if kind == "f32" else "bf16"}
    parts = {}
    for name in PARTS:
        path = os.path.join(a.parts, name + (".onnx" if kind in ("f32", "bf16") else ".%s.xml" % kind))
        model = core.compile_model(path, "CPU", settings)
        request = model.create_infer_request()
        names = [i.any_name for i in model.inputs]

        def call(values, request=request, names=names):
            request.infer({n: values[n] for n in names if n in values}, share_inputs=True)
            return {o.any_name: request.get_output_tensor(i).data for i, o in enumerate(request.model_outputs)}
        parts[name] = call
        if name == "image_encoder":
            side = list(model.inputs[0].shape)[2]
        if name == "text_encoder":
            prompt = list(model.inputs[0].shape)[1]
    return parts, side, prompt


def onnxruntime_parts(a, kind):
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads = a.threads
    options.inter_op_num_threads = 1
    parts = {}
    for name in PARTS:
        path = os.path.join(a.parts, name + (".onnx" if kind == "f32" else ".ort-int8.onnx"))
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
        names = [i.name for i in session.get_inputs()]
        outputs = [o.name for o in session.get_outputs()]

        def call(values, session=session, names=names, outputs=outputs):
            return dict(zip(outputs, session.run(None, {n: values[n] for n in names if n in values})))
        parts[name] = call
        shape = session.get_inputs()[0].shape
        if name == "image_encoder":
            side = shape[2]
        if name == "text_encoder":
            prompt = shape[1]
    return parts, side, prompt


def run_parts(a, kind, opener):
    """Loads three parts and times them."""
    import numpy as np
    start = time.perf_counter()
    parts, side, prompt = opener(a, kind)
    load = time.perf_counter() - start
    pixels, words = {"image": network_input(picture(side))}, {"token_ids": token_ids(prompt)}
    encode, features = best(a.repeats, lambda: parts["image_encoder"](pixels))
    features = {k: np.array(v) for k, v in features.items()}
    text, said = best(a.repeats, lambda: parts["text_encoder"](words))
    said = {k: np.array(v) for k, v in said.items()}
    values = {**features, **said, "text_attention_mask_float": said["text_attention_mask"].astype(np.float32)}
    ground, _ = best(a.repeats, lambda: parts["grounding_head"](values))
    if a.level:
        np.save(a.level, level(features["backbone_fpn_2"]))
    return {"load": load, "encode": encode, "text": text, "ground": ground}


def run_samite(a, kind):
    """Through `samite bench`; the features for the cosine come from `samite encode`."""
    import numpy as np
    common = ["-m", a.model, "--precision", kind, "-j", str(a.threads), "-q"]
    if a.size:
        common += ["--size", str(a.size)]
    out = json.loads(subprocess.run([a.samite, "bench", "--json", "--repeats", str(a.repeats), "--text", WORDS, *common],
                                    check=True, stdout=subprocess.PIPE).stdout)
    if a.level:
        with tempfile.TemporaryDirectory() as folder:
            photo, file = os.path.join(folder, "p.ppm"), os.path.join(folder, "f.safetensors")
            write_ppm(photo, picture(a.side))
            subprocess.run([a.samite, "encode", photo, "-o", file, "--dtype", "f32", *common], check=True)
            np.save(a.level, read_tensor(file, "level.2"))
    return {"load": out["load"]["seconds"], "encode": out["image_encode"]["seconds"], "text": out["text"]["seconds"],
            "ground": out["ground"]["seconds"], "peak": out["peak_rss_bytes"], "gemm": out["gemm_gflops"]}


def read_tensor(path, name):
    import numpy as np
    with open(path, "rb") as f:
        size = int.from_bytes(f.read(8), "little")
        entry = json.loads(f.read(size))[name]
        begin, end = entry["data_offsets"]
        f.seek(8 + size + begin)
        values = np.frombuffer(f.read(end - begin), np.float32)
    return values.reshape(-1, entry["shape"][-1])


def run_pytorch(a, kind):
    here = os.path.dirname(os.path.abspath(__file__))
    command = [a.pytorch, os.path.join(here, "pytorch.py"), "--bpe", a.bpe, "--preset", a.preset, "--threads",
               str(a.threads), "--repeats", str(a.repeats)] + (["--bf16"] if kind == "bf16" else [])
    out = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout.splitlines()[-1])
    return {"load": out["load"], "encode": out["image_encode"], "text": out["text"], "ground": out["ground"],
            "peak": out["peak_rss_bytes"]}


def child(a):
    """One engine, in this process; prints one JSON object."""
    engine, kind = PEERS[a.name]
    work = {"samite": run_samite, "pytorch": run_pytorch,
            "openvino": lambda x, k: run_parts(x, k, openvino_parts),
            "onnxruntime": lambda x, k: run_parts(x, k, onnxruntime_parts)}[engine]
    out = work(a, kind)
    out.setdefault("peak", resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
    print(json.dumps(out))


# ---- 8-bit models ----

def prepare(a):
    if "openvino" in a.engines:
        for kind in a.kinds:
            for name in PARTS:
                out = os.path.join(a.parts, "%s.%s.xml" % (name, kind))
                if not os.path.exists(out):
                    print("prepare:", out, flush=True)
                    # a process each: memory of one does not stay for the next
                    subprocess.run([sys.executable, __file__, "quantize", "--parts", a.parts, "--name", name, "--kind",
                                    kind], check=True)
    if "onnxruntime" in a.engines:
        from onnxruntime.quantization import QuantType, quantize_dynamic
        for name in PARTS:
            out = os.path.join(a.parts, name + ".ort-int8.onnx")
            if not os.path.exists(out):
                print("prepare:", out, flush=True)
                quantize_dynamic(os.path.join(a.parts, name + ".onnx"), out, weight_type=QuantType.QInt8,
                                 op_types_to_quantize=["MatMul", "Gemm"], use_external_data_format=True)


def quantize(a):
    """One part for OpenVINO: w8 = 8-bit weights; w8a8 = weights and activations, from the values of one picture."""
    import nncf
    import openvino as ov
    model = ov.Core().read_model(os.path.join(a.parts, a.name + ".onnx"))
    out = os.path.join(a.parts, "%s.%s.xml" % (a.name, a.kind))
    if a.kind == "w8":
        model = nncf.compress_weights(model, mode=nncf.CompressWeightsMode.INT8_SYM)
    elif a.name == "text_encoder":
        model = nncf.quantize(model, nncf.Dataset([{"token_ids": token_ids(list(model.inputs[0].shape)[1])}]),
                              model_type=nncf.ModelType.TRANSFORMER, subset_size=1)
    elif a.name == "image_encoder":
        pixels = network_input(picture(list(model.inputs[0].shape)[2]))
        model = nncf.quantize(model, nncf.Dataset([{"image": pixels}]), model_type=nncf.ModelType.TRANSFORMER,
                              subset_size=1)
    else:
        model = nncf.quantize(model, nncf.Dataset([head_input(a)]), model_type=nncf.ModelType.TRANSFORMER,
                              subset_size=1)
    ov.save_model(model, out, compress_to_fp16=False)


def head_input(a):
    """What the head is given for the made-up picture."""
    import numpy as np
    a.threads = os.cpu_count()
    values = {}
    import openvino as ov
    core = ov.Core()
    for name, make in (("image_encoder", lambda m: {"image": network_input(picture(list(m.inputs[0].shape)[2]))}),
                       ("text_encoder", lambda m: {"token_ids": token_ids(list(m.inputs[0].shape)[1])})):
        model = core.compile_model(os.path.join(a.parts, name + ".onnx"), "CPU")
        result = model(make(model))
        values.update({o.any_name: np.array(result[o]) for o in model.outputs})
    values["text_attention_mask_float"] = values["text_attention_mask"].astype(np.float32)
    head = core.read_model(os.path.join(a.parts, "grounding_head.onnx"))
    return {i.any_name: values[i.any_name] for i in head.inputs}


# ---- the run ----

def cosine(x, y):
    import numpy as np
    x, y = np.load(x).astype(np.float64).ravel(), np.load(y).astype(np.float64).ravel()
    return float(x @ y / np.sqrt((x @ x) * (y @ y))) if x.shape == y.shape else float("nan")


def names_to_run(a):
    wanted = a.only.split(",") if a.only else list(PEERS)
    unknown = [n for n in wanted + (a.skip or "").split(",") if n and n not in PEERS]
    if unknown:
        sys.exit("peers.py: unknown engine %s; known: %s" % (unknown[0], ", ".join(PEERS)))
    wanted = [n for n in wanted if n not in (a.skip or "").split(",")]
    return [n for n in wanted if PEERS[n][0] != "pytorch" or a.pytorch]


def run_all(a):
    rows, reference = {}, None
    with tempfile.TemporaryDirectory() as folder:
        for name in names_to_run(a):
            file = os.path.join(folder, name + ".npy")
            print("# %s" % name, file=sys.stderr, flush=True)
            command = [sys.executable, os.path.abspath(__file__), "child", name, "--parts", a.parts, "--samite", a.samite,
                       "--model", a.model, "--threads", str(a.threads), "--repeats", str(a.repeats), "--level", file,
                       "--side", str(a.side), "--size", str(a.size), "--pytorch", a.pytorch or "", "--bpe", a.bpe or "",
                       "--preset", a.preset]
            env = dict(os.environ, OMP_NUM_THREADS=str(a.threads))
            done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=env)
            lines = done.stdout.decode().strip().splitlines()
            if done.returncode or not lines:
                why = (done.stderr.decode().strip().splitlines() or ["no output"])[-1]
                print("# %s failed: %s" % (name, why), file=sys.stderr)
                rows[name] = {"error": why}
                continue
            rows[name] = json.loads(lines[-1])
            if os.path.exists(file):
                if reference is None and PEERS[name][1] == "f32":
                    reference = file
                if reference:
                    rows[name]["cosine"] = cosine(file, reference)
    if a.json:
        with open(a.json, "w") as f:
            json.dump({"threads": a.threads, "repeats": a.repeats, "engines": rows}, f, indent=1)
    print_table(rows)
    print_ratios(rows)


def print_table(rows):
    print("| engine | load s | encode s | text s | ground s | peak GB | cosine |")
    print("|---|---|---|---|---|---|---|")
    for name, r in rows.items():
        if "error" in r:
            print("| %s | failed: %s |" % (name, r["error"].replace("|", "/")[:100]))
            continue
        print("| %s | %.2f | %.3f | %.4f | %.3f | %.2f | %s |" %
              (name, r["load"], r["encode"], r["text"], r["ground"], r["peak"] / 1e9,
               "%.6f" % r["cosine"] if "cosine" in r else ""))


# samite beside the engine it is measured against: how many times faster, in this run
GOALS = (("samite-f32", ("openvino-f32", "onnxruntime-f32", "pytorch-f32")),
         ("samite-bf16", ("openvino-bf16", "openvino-w8", "pytorch-bf16")),
         ("samite-int8", ("openvino-w8a8", "onnxruntime-int8")))


def print_ratios(rows):
    print("\n| times as fast as | encode | text | ground | peak memory, share |")
    print("|---|---|---|---|---|")
    for ours, others in GOALS:
        for other in others:
            r, o = rows.get(ours, {}), rows.get(other, {})
            if "encode" in r and "encode" in o:
                print("| %s : %s | %.2f | %.2f | %.2f | %.2f |" % (ours, other, o["encode"] / r["encode"],
                      o["text"] / r["text"], o["ground"] / r["ground"], r["peak"] / o["peak"]))


def main():
    ap = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    ap.add_argument("action", choices=("run", "prepare", "list", "child", "quantize"))
    ap.add_argument("name", nargs="?", help="engine (child)")
    ap.add_argument("--name", dest="part")
    ap.add_argument("--kind")
    ap.add_argument("--kinds", default="w8,w8a8", type=lambda s: s.split(","))
    ap.add_argument("--engines", default="openvino,onnxruntime", type=lambda s: s.split(","), help="for prepare")
    ap.add_argument("--parts", default="parts", help="folder of samite export onnx")
    ap.add_argument("--samite", default="build/samite")
    ap.add_argument("--model", default="sam3.pt")
    ap.add_argument("--only", help="engines, separated by commas")
    ap.add_argument("--skip", help="engines to leave out")
    ap.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    ap.add_argument("--repeats", type=int, default=3)
    ap.add_argument("--side", type=int, default=1008, help="of the picture: what the network sees")
    ap.add_argument("--size", type=int, default=0, help="samite --size, where the parts have another than the model")
    ap.add_argument("--pytorch", help="a Python for bench/pytorch.py")
    ap.add_argument("--bpe", help="vocabulary for bench/pytorch.py")
    ap.add_argument("--preset", default="full", help="for bench/pytorch.py")
    ap.add_argument("--level", help="file for the coarsest level (child)")
    ap.add_argument("--json", help="file for all numbers")
    a = ap.parse_args()
    if a.action == "list":
        print("\n".join(PEERS))
    elif a.action == "quantize":
        a.name = a.part
        quantize(a)
    else:
        {"run": run_all, "prepare": prepare, "child": child}[a.action](a)


if __name__ == "__main__":
    main()
