#!/usr/bin/env python3
"""The official SAM 3 through torch.onnx.export, in our three parts, and both exports timed in ONNX Runtime in turns.

    python3 bench/torch_export.py write --bpe BPE_VOCAB.txt.gz --preset small --out theirs [--checkpoint sam3.pt]
    samite export onnx -m formula:small --out ours
    python3 bench/torch_export.py time ours theirs [--threads 2] [--turns 3] [--runs 8]

`write` needs what the head of tools/reference/sam3ref.py names and onnx, `time` numpy and onnxruntime; --part restricts
both to one part. Each part is written and run in a process of its own, so that its memory does not stay for the next.
"""

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time

PARTS = {
    "image_encoder": (["image"], ["vision_features", "vision_pos_enc_0", "vision_pos_enc_1", "vision_pos_enc_2",
                                  "backbone_fpn_0", "backbone_fpn_1", "backbone_fpn_2"]),
    "text_encoder": (["token_ids"], ["text_attention_mask", "text_memory_resized"]),
    "grounding_head": (["backbone_fpn_0", "backbone_fpn_1", "backbone_fpn_2", "vision_pos_enc_2", "text_memory_resized",
                        "text_attention_mask_float"],
                       ["pred_logits", "pred_boxes", "pred_masks", "presence_logit_dec"]),
}
# "a yellow school bus" as the network reads it, then padding
TOKENS = (49406, 320, 4481, 1228, 2840, 49407)


# ---- writing ----

def official_model(a):
    """The package's model in the chosen size, with the formula's weights or those of a checkpoint."""
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tools", "reference"))
    import torch
    import sam3ref as ref
    c = ref.PRESETS[a.preset]
    model = ref.image_model(c, a.bpe)
    if not a.checkpoint:
        return c, ref.fill_image_model(model)
    weights = torch.load(a.checkpoint, map_location="cpu", mmap=True, weights_only=True)
    weights = weights.get("model", weights)
    own = model.state_dict()
    model.load_state_dict({k: weights.get(ref.official_name(k), v) for k, v in own.items()}, assign=True)
    missing = [k for k in own if ref.official_name(k) not in weights and ref.is_formula_tensor(k, own[k])]
    if missing:
        sys.exit("%s: %d tensors are missing, the first is %s" % (a.checkpoint, len(missing), missing[0]))
    return c, model


def make_rotations_real(trunk):
    """ONNX has no complex numbers: every attention of the trunk rotates pairs with two real tables instead."""
    import torch

    def rotated(x, cos, sin):
        even, odd = x[..., 0::2], x[..., 1::2]
        return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)
    for block in trunk.blocks:
        attn = block.attn
        cos, sin = attn.freqs_cis.real.clone(), attn.freqs_cis.imag.clone()
        attn.freqs_cis = None
        attn._apply_rope = lambda q, k, cos=cos, sin=sin: (rotated(q, cos, sin), rotated(k, cos, sin))


def wrapped(name, model):
    """A module with the tensors of the part as its arguments and results; prompts are words alone."""
    import torch
    from sam3.model import geometry_encoders, sam3_image
    from sam3.model.data_misc import FindStage

    class Image(torch.nn.Module):
        def __init__(self):
            super().__init__()
            make_rotations_real(model.backbone.vision_backbone.trunk)
            self.backbone = model.backbone.vision_backbone

        def forward(self, image):
            fpn, pos, _, _ = self.backbone(image)
            return (fpn[2], *pos[:3], *fpn[:3])

    class Text(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.text = model.backbone.language_backbone

        def forward(self, ids):
            return (ids == 0).float(), self.text.resizer(self.text.encoder(ids)[1].transpose(0, 1))

    class Head(torch.nn.Module):
        def __init__(self):
            super().__init__()
            model.backbone = None
            self.model = model
            # results of all layers, not only of the last one; and what joins an empty prompt with the rest has no work
            sam3_image._update_out = lambda out, key, value, auxiliary=True, update_aux=True: out.update(
                {key: value[-1] if auxiliary else value, "all_" + key: value})
            geometry_encoders.concat_padded_sequences = lambda a, am, b, bm: (torch.cat([a, b]), torch.cat([am, bm], 1))
            empty = model.geometry_encoder
            empty._encode_points = lambda points, points_mask, **_: (torch.zeros(0, 1, empty.d_model), points_mask)
            empty._encode_boxes = lambda boxes, boxes_mask, **_: (torch.zeros(0, 1, empty.d_model), boxes_mask)
            zero = torch.tensor([0])
            self.stage = FindStage(img_ids=zero, text_ids=zero, input_boxes=None, input_boxes_mask=None,
                                   input_boxes_label=None, input_points=None, input_points_mask=None)

        def forward(self, fpn0, fpn1, fpn2, pos2, words, padding):
            out = self.model.forward_grounding(
                backbone_out={"backbone_fpn": [fpn0, fpn1, fpn2], "vision_pos_enc": [pos2], "language_features": words,
                              "language_mask": padding > 0.5},
                find_input=self.stage, geometric_prompt=self.model._get_dummy_prompt(), find_target=None)
            return out["all_pred_logits"], out["all_pred_boxes"], out["pred_masks"], out["all_presence_logit_dec"]
    return {"image_encoder": Image, "text_encoder": Text, "grounding_head": Head}[name]().eval()


def example(name, c):
    """Arguments of the right shapes: what the trace runs on."""
    import torch
    t, d = c.tokens, c.d
    if name == "image_encoder":
        return (torch.rand(1, 3, c.image, c.image) * 2 - 1,)
    if name == "text_encoder":
        return (torch.tensor([(list(TOKENS) + [0] * 32)[:32]]),)
    levels = [torch.randn(1, d, t * k, t * k) for k in (4, 2, 1)]
    return (*levels, torch.randn(1, d, t, t), torch.randn(32, 1, d), (torch.arange(32) > 5).float()[None])


def write_part(a):
    import torch
    torch.set_num_threads(a.threads)
    torch.backends.mha.set_fastpath_enabled(False)
    c, model = official_model(a)
    part = wrapped(a.part, model)
    del model
    ins, outs = PARTS[a.part]
    with torch.no_grad():
        if a.part == "image_encoder":  # tables of positions are kept from a first call and become constants
            for k in (4, 2, 1):
                part.backbone.position_encoding(torch.zeros(1, 1, c.tokens * k, c.tokens * k))
        torch.onnx.export(part, example(a.part, c), os.path.join(a.out, a.part + ".onnx"), input_names=ins,
                          output_names=outs, opset_version=17, dynamo=False)


def write(a):
    os.makedirs(a.out, exist_ok=True)
    if a.part:
        return write_part(a)
    for name in PARTS:
        subprocess.run([sys.executable, __file__, *sys.argv[1:], "--part", name], check=True)


# ---- timing ----

def run_part(a):
    """One part of one folder: seconds of the clock and of the processor, best of the runs, and the outputs kept."""
    import numpy as np
    import onnxruntime as ort
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = a.threads, 1
    options.log_severity_level = 3
    start = time.perf_counter()
    session = ort.InferenceSession(os.path.join(a.ours, a.part + ".onnx"), options, providers=["CPUExecutionProvider"])
    load = time.perf_counter() - start
    feeds = made_up({i.name: i.shape for i in session.get_inputs()})
    clock, processor = [], []
    for _ in range(a.runs):
        start = time.perf_counter(), time.process_time()
        out = session.run(PARTS[a.part][1], feeds)
        clock.append(time.perf_counter() - start[0])
        processor.append(time.process_time() - start[1])
    np.savez(a.keep, **dict(zip(PARTS[a.part][1], out)))
    print(json.dumps({"load": load, "clock": min(clock), "processor": min(processor),
                      "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def made_up(shapes):
    """The same inputs for both exports, whatever their order."""
    import numpy as np
    feeds = {}
    for seed, name in enumerate(sorted(shapes)):
        if name == "token_ids":
            feeds[name] = np.array([(list(TOKENS) + [0] * shapes[name][1])[:shapes[name][1]]], np.int64)
        elif name == "text_attention_mask_float":
            feeds[name] = (np.arange(shapes[name][1]) >= len(TOKENS)).astype(np.float32)[None]
        else:
            feeds[name] = np.random.default_rng(seed).standard_normal(shapes[name]).astype(np.float32)
    return feeds


def compare(ours, theirs):
    """Largest difference of all outputs, relative to the largest value of each."""
    import numpy as np
    with np.load(ours) as a, np.load(theirs) as b:
        return max(float(np.abs(a[k] - b[k]).max() / max(1.0, np.abs(b[k]).max())) for k in b.files)


def measure(a):
    best = {}
    with tempfile.TemporaryDirectory() as tmp:
        for turn in range(a.turns):
            for part in [a.part] if a.part else PARTS:
                for who, folder in (("ours", a.ours), ("theirs", a.theirs))[::1 if turn % 2 == 0 else -1]:
                    keep = os.path.join(tmp, who + ".npz")
                    out = json.loads(subprocess.run(
                        [sys.executable, __file__, "run", folder, "--part", part, "--keep", keep, "--threads",
                         str(a.threads), "--runs", str(a.runs)], check=True, stdout=subprocess.PIPE).stdout)
                    kept = best.setdefault((part, who), out)
                    best[part, who] = {k: min(out[k], kept[k]) for k in out}
                best[part, "difference"] = compare(os.path.join(tmp, "ours.npz"), os.path.join(tmp, "theirs.npz"))
    print("%-16s %21s %21s %7s %17s %12s" % ("", "clock s, ours/theirs", "processor s", "ratio", "peak MiB",
                                             "difference"))
    for part in [a.part] if a.part else PARTS:
        o, t = best[part, "ours"], best[part, "theirs"]
        print("%-16s %10.3f %10.3f %10.3f %10.3f %7.3f %8.0f %8.0f %12.2g" %
              (part, o["clock"], t["clock"], o["processor"], t["processor"], o["processor"] / t["processor"], o["peak"],
               t["peak"], best[part, "difference"]))


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    sub = ap.add_subparsers(dest="what", required=True)
    w = sub.add_parser("write")
    w.add_argument("--bpe", required=True)
    w.add_argument("--preset", default="small", choices=("tiny", "small", "full"))
    w.add_argument("--checkpoint")
    w.add_argument("--out", required=True)
    t = sub.add_parser("time")
    t.add_argument("ours")
    t.add_argument("theirs")
    t.add_argument("--turns", type=int, default=3)
    r = sub.add_parser("run")
    r.add_argument("ours")
    r.add_argument("--keep", required=True)
    for p in (w, t, r):
        p.add_argument("--part", choices=sorted(PARTS))
        p.add_argument("--threads", type=int, default=2)
    for p in (t, r):
        p.add_argument("--runs", type=int, default=8)
    a = ap.parse_args()
    {"write": write, "time": measure, "run": run_part}[a.what](a)


if __name__ == "__main__":
    main()
