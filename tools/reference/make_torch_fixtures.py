"""Writes the small .pt and .safetensors files that tests/formats.c reads.

    python make_torch_fixtures.py ../../tests/golden/formats

Needs torch, numpy and safetensors. Values follow the weight formula (see formula() below) under the official name of
each tensor, so that the test can compute what it expects; see TENSORS for names and shapes.
"""

import argparse
import io
import json
import math
import os
import pickle
import sys
import zipfile
from collections import OrderedDict

import numpy as np
import torch
from safetensors.torch import save_file

# Official name -> shape. Short stand-ins with the endings that matter to the formula.
TENSORS = {
    "detector.backbone.vision_backbone.trunk.blocks.0.norm1.weight": (6,),
    "detector.backbone.vision_backbone.trunk.blocks.0.norm1.bias": (6,),
    "detector.backbone.vision_backbone.trunk.patch_embed.proj.weight": (4, 3, 2, 2),
    "detector.geometry_encoder.label_embed.weight": (2, 5),
    "tracker.sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix": (2, 4),
    "tracker.maskmem_backbone.fuser.layers.0.gamma": (7,),
}


def formula(name, shape, seed=0):
    mask = (1 << 64) - 1
    key = 14695981039346656037
    for byte in name.encode():
        key = ((key ^ byte) * 1099511628211) & mask
    key ^= (seed * 0x9E3779B97F4A7C15) & mask
    values = []
    for i in range(int(np.prod(shape, dtype=np.int64)) if shape else 1):
        z = (key + (i + 1) * 0x9E3779B97F4A7C15) & mask
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
        z ^= z >> 31
        values.append((z >> 40) / (1 << 23) - 1)
    u = np.array(values, np.float32)
    if name.endswith("gaussian_matrix"):
        u *= np.float32(1.5)
    elif len(shape) >= 2:
        u *= np.float32(math.sqrt(3.0 / float(np.prod(shape[1:], dtype=np.int64))))
    elif name.endswith(("weight", "gamma", "pred_obj_score_head.layers.2.bias")):
        u = np.float32(1) + np.float32(0.1) * u
    else:
        u *= np.float32(0.1)
    return torch.from_numpy(u.reshape(shape))


def tensors(dtype=torch.float32):
    return {name: formula(name, shape).to(dtype) for name, shape in TENSORS.items()}


def view_of(value, extra):
    """The value as a view with an offset into a storage that holds more."""
    storage = torch.full((value.numel() + 2 * extra,), 9.0)
    storage[extra:extra + value.numel()] = value.reshape(-1)
    return storage[extra:extra + value.numel()].view(value.shape)


def transposed(value):
    """The value as a view whose axes lie the other way round in memory."""
    axes = tuple(reversed(range(value.dim())))
    return value.permute(axes).contiguous().permute(axes)


def views():
    """Official names, but every tensor is another kind of view; two of them share one storage."""
    out = tensors()
    names = list(out)
    shared = torch.cat([out[names[0]], out[names[1]]])
    out[names[0]], out[names[1]] = shared[:6], shared[6:]
    out[names[2]] = transposed(out[names[2]])
    wide = torch.zeros(2, 10)
    wide[:, 2:7] = out[names[3]]
    out[names[3]] = wide[:, 2:7]
    out[names[4]] = view_of(out[names[4]], 3)
    every = torch.zeros(21)
    every[1::3] = out[names[5]]
    out[names[5]] = every[1::3]
    return out


def rewrite(source, target, change):
    """Copies a zip of torch.save entry by entry; change(name, bytes) gives the new bytes or None to drop the entry."""
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as new:
        for info in old.infolist():
            data = change(info.filename, old.read(info))
            if data is not None:
                new.writestr(zipfile.ZipInfo(info.filename), data)


def archive(path, data_pkl, entries=()):
    """A hand-made archive with the given pickle."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo("archive/data.pkl"), data_pkl)
        z.writestr(zipfile.ZipInfo("archive/byteorder"), "little")
        for name, data in entries:
            z.writestr(zipfile.ZipInfo("archive/" + name), data)


class Evil:
    def __reduce__(self):
        return os.system, ("touch samite_was_here",)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = torch.nn.Linear(2, 2)


class Storage:
    """Pickles as the persistent id of a float storage with 4 elements."""


class TensorPickler(pickle.Pickler):
    def persistent_id(self, value):
        return ("storage", torch.FloatStorage, "0", "cpu", 4) if isinstance(value, Storage) else None


class Rebuilt:
    """Pickles as the call that rebuilds a tensor with whatever offset, size and stride."""

    def __init__(self, offset, size, stride):
        self.extent = (offset, size, stride)

    def __reduce__(self):
        return torch._utils._rebuild_tensor_v2, (Storage(), *self.extent, False, OrderedDict())


def tensor_pickle(*extent):
    out = io.BytesIO()
    TensorPickler(out, 2).dump({"detector.x.weight": Rebuilt(*extent)})
    return out.getvalue()


def write_state_dicts(path):
    flat = tensors()
    torch.save(flat, path("flat.pt"))
    optimizer = {"state": {0: {"step": torch.tensor(3.0), "exp_avg": torch.zeros(4)}},
                 "param_groups": [{"lr": 1e-4, "params": [0]}]}
    torch.save({"model": OrderedDict(flat), "optimizer": optimizer, "epoch": 7, "samite.config": "{\"d\": 64}",
                "args": argparse.Namespace(lr=0.1), "big": 1 << 80}, path("nested.pt"))
    bare = {}
    for name, value in flat.items():
        found = name.replace("detector.", "module.").replace("tracker.", "module.tracker.")
        bare[found] = torch.nn.Parameter(value)
    torch.save({"state_dict": bare}, path("prefixes.pt"))
    torch.save({"model": views()}, path("views.pt"))
    torch.save(tensors(torch.float16), path("f16.pt"))
    torch.save(tensors(torch.bfloat16), path("bf16.pt"))
    torch.save(tensors(torch.float64), path("f64.pt"))
    torch.save({"detector.scalar.weight": formula("detector.scalar.weight", ()),
                "detector.i64": torch.tensor([1, -2, 1 << 40]),
                "detector.i32": torch.tensor([1, -2], dtype=torch.int32),
                "detector.i16": torch.tensor([1, -2], dtype=torch.int16),
                "detector.i8": torch.tensor([1, -2], dtype=torch.int8),
                "detector.u8": torch.tensor([1, 254], dtype=torch.uint8), "detector.bool": torch.tensor([True, False]),
                "detector.empty": torch.zeros(0, 3),
                "detector.blocks.0.attn.freqs_cis": torch.polar(torch.ones(2, 3), torch.ones(2, 3))},
               path("types.pt"))
    torch.save({"model": {"detector.twice.weight": torch.zeros(2), "module.twice.weight": torch.zeros(2)}},
               path("twice.pt"))
    torch.save({"optimizer": optimizer, "epoch": 7}, path("no_weights.pt"))


def write_bad(path):
    with open(path("nested.pt"), "rb") as f:
        whole = f.read()
    for name, size in (("cut_half.pt", len(whole) // 2), ("cut_last.pt", len(whole) - 1), ("cut_first.pt", 100)):
        with open(path(name), "wb") as f:
            f.write(whole[:size])
    torch.save(tensors(), path("legacy.pt"), _use_new_zipfile_serialization=False)
    small = {"detector.a.weight": torch.ones(2), "detector.q.weight":
             torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)}
    torch.save(small, path("quantized.pt"))
    torch.save({"detector.a.weight": torch.ones(2), "detector.f8.weight": torch.ones(2).to(torch.float8_e4m3fn)},
               path("float8.pt"))
    rewrite(path("flat.pt"), path("big_endian.pt"), lambda name, data: b"big" if name.endswith("byteorder") else data)
    archive(path("evil.pt"), pickle.dumps(Evil(), protocol=2))
    archive(path("evil_beside.pt"), pickle.dumps({"model": {"detector.a.weight": Evil()}, "x": Evil()}, protocol=2))
    archive(path("torchscript.pt"), pickle.dumps({}, protocol=2), [("constants.pkl", b"\x80\x02).")])
    torch.save(Module(), path("module.pt"))
    data = [("data/0", np.ones(4, np.float32).tobytes())]
    archive(path("size_huge.pt"), tensor_pickle(0, (1 << 40, 1 << 40), (1 << 40, 1)), data)
    archive(path("size_over.pt"), tensor_pickle(2, (3,), (1,)), data)
    archive(path("stride_over.pt"), tensor_pickle(0, (2, 2), (3, 1)), data)
    archive(path("offset_negative.pt"), tensor_pickle(-1, (2,), (1,)), data)
    archive(path("stride_negative.pt"), tensor_pickle(3, (2,), (-1,)), data)
    archive(path("no_data.pt"), tensor_pickle(0, (4,), (1,)))
    with zipfile.ZipFile(path("compressed.pt"), "w", zipfile.ZIP_DEFLATED) as z:
        z.writestr("archive/data.pkl", tensor_pickle(0, (4,), (1,)) + b" " * 100)
        z.writestr("archive/data/0", bytes(1000))
    with zipfile.ZipFile(path("other.zip"), "w", zipfile.ZIP_STORED) as z:
        z.writestr(zipfile.ZipInfo("readme.txt"), "no model")


def write_safetensors(path):
    out = tensors()
    out["detector.half.weight"] = formula("detector.half.weight", (3, 2)).half()
    out["detector.odd.bias"] = formula("detector.odd.bias", (3,)).bfloat16()
    out["detector.count"] = torch.tensor([5, -6])
    save_file(out, path("plain.safetensors"), metadata={"samite.config": "{\"d\": 64}", "format": "pt"})
    folder = path("sharded")
    os.makedirs(folder, exist_ok=True)
    names, places = list(TENSORS), {}
    for i in range(2):
        shard = "model-0000%d-of-00002.safetensors" % (i + 1)
        save_file({n: formula(n, TENSORS[n]) for n in names[3 * i:3 * i + 3]}, os.path.join(folder, shard))
        places.update({n: shard for n in names[3 * i:3 * i + 3]})
    with open(os.path.join(folder, "model.safetensors.index.json"), "w") as f:
        json.dump({"metadata": {"total_size": 1}, "weight_map": places}, f, indent=1)


def main():
    folder = sys.argv[1]
    os.makedirs(folder, exist_ok=True)

    def path(name):
        return os.path.join(folder, name)
    write_state_dicts(path)
    write_bad(path)
    write_safetensors(path)


if __name__ == "__main__":
    main()
