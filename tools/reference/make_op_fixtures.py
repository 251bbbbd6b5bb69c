"""Writes tests/golden/ops/ops.safetensors: inputs, output and gradients of every op, computed by PyTorch in float64.

Names: CASE.in0.., CASE.p0.. (parameters), CASE.y, CASE.dy (the gradient at y), CASE.din0.., CASE.dp0.. (gradients
that the op has to make; absent = not wanted). Values are on channels-last layouts and rounded to float32 before they
are used.

    python make_op_fixtures.py OUT.safetensors
"""
import math
import sys

import torch
import torch.nn.functional as F
import torchvision
from safetensors.torch import save_file

out = {}
rng = torch.Generator().manual_seed(7)


def rnd(*shape, scale=1.0):
    return (torch.randn(*shape, generator=rng) * scale).float().double()


def unit(*shape, low=0.05, high=0.95):
    return (torch.rand(*shape, generator=rng) * (high - low) + low).float().double()


def case(name, fn, ins=(), params=(), fixed=(), frozen=False):
    """fixed: numbers of inputs that take no gradient; frozen: no parameter does."""
    ins = [t.clone().requires_grad_(t.is_floating_point() and i not in fixed) for i, t in enumerate(ins)]
    params = [t.clone().requires_grad_(not frozen) for t in params]
    y = fn(*ins, *params)
    dy = rnd(*y.shape)
    wanted = [t for t in ins + params if t.requires_grad]
    grads = dict(zip(map(id, wanted), torch.autograd.grad(y, wanted, dy, allow_unused=True))) if y.requires_grad else {}
    for kind, list_ in (("in", ins), ("p", params)):
        for i, t in enumerate(list_):
            out[f"{name}.{kind}{i}"] = t.detach().float() if t.is_floating_point() else t.int()
            if id(t) in grads:
                g = grads[id(t)]
                out[f"{name}.d{kind}{i}"] = (torch.zeros_like(t) if g is None else g).float()
    out[f"{name}.y"] = y.detach().float()
    out[f"{name}.dy"] = dy.float()


def first(x):
    """channels-last to channels-first"""
    return x.movedim(-1, 1)


def last(x):
    return x.movedim(1, -1)


# linear.c
case("linear", F.linear, [rnd(2, 3, 8)], [rnd(6, 8), rnd(6)])
case("linear_no_bias", F.linear, [rnd(5, 8)], [rnd(6, 8)])
for act, f in (("relu", F.relu), ("gelu", F.gelu), ("sigmoid", torch.sigmoid)):
    case(f"linear_{act}", lambda x, w, b, f=f: f(F.linear(x, w, b)), [rnd(4, 8)], [rnd(6, 8), rnd(6)])
case("linear_add", lambda x, z, w, b: F.linear(x, w, b) + z, [rnd(1, 4, 8), rnd(1, 4, 6)], [rnd(6, 8), rnd(6)])
case("linear_rows", lambda x, w, b: F.linear(x, w[4:8], b[4:8]) * F.linear(x, w[8:12], b[8:12]), [rnd(3, 8)],
     [rnd(12, 8), rnd(12)])
case("linear_pixels", lambda x, w, b: F.linear(x, w.flatten(1), b), [rnd(1, 2, 3, 12)], [rnd(5, 3, 2, 2), rnd(5)])
case("linear_view", lambda x, w, b: F.linear(x[..., 2:10], w, b), [rnd(2, 3, 12)], [rnd(6, 8), rnd(6)])
case("product", lambda a, b: a @ b.transpose(1, 2), [rnd(2, 3, 8), rnd(2, 5, 8)])
case("product_shared", lambda a, b: a @ b.transpose(1, 2), [rnd(2, 3, 8), rnd(1, 5, 8)])
case("product_view", lambda a, b: a[..., 8:] @ b[..., :8].transpose(1, 2), [rnd(2, 3, 16), rnd(2, 5, 16)])


# attention.c
def rotate(x, table, keys):
    """x [B, h, n, d]; table [rows, d]: cos, sin of each pair"""
    n = x.shape[2]
    rows = table[torch.arange(n) % len(table)].double()
    cos, sin = rows[:, 0::2], rows[:, 1::2]
    a, b = x[..., 0::2], x[..., 1::2]
    turned = torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
    return torch.cat((turned[:, :, :keys], x[:, :, keys:]), 2)


def attend(q, k, v, heads, causal=False, mask=None, bx=None, by=None, rope=None, rope_keys=None, scale=None):
    batch, nq, c = q.shape
    nk = k.shape[1]
    q, k, v = (t.expand(batch, -1, -1).reshape(batch, -1, heads, c // heads).transpose(1, 2) for t in (q, k, v))
    if rope is not None:
        q, k = rotate(q, rope, nq), rotate(k, rope, nk if rope_keys is None else rope_keys)
    s = q @ k.transpose(2, 3) * (scale or 1 / math.sqrt(c // heads))
    if bx is not None:
        s = s + (by[:, :, :, None] + bx[:, :, None]).flatten(2, 3).movedim(-1, 1)
    if causal:
        s = s.masked_fill(torch.ones(nq, nk, dtype=torch.bool).triu(1), -math.inf)
    if mask is not None:
        s = s.masked_fill((mask != 0)[:, None, None], -math.inf)
    return (s.softmax(-1) @ v).transpose(1, 2).flatten(2)


mask = torch.tensor([[0, 0, 1, 0, 1], [0, 1, 0, 0, 0]]).double()
angle = rnd(3, 4)
table = torch.stack((angle.cos(), angle.sin()), -1).flatten(1).float().double()
case("attention", lambda q, k, v: attend(q, k, v, 2), [rnd(2, 3, 16), rnd(2, 5, 16), rnd(2, 5, 16)])
case("attention_causal", lambda q, k, v: attend(q, k, v, 1, causal=True), [rnd(1, 6, 8) for _ in range(3)])
case("attention_mask", lambda q, k, v, m: attend(q, k, v, 2, mask=m, scale=0.5),
     [rnd(2, 3, 16), rnd(1, 5, 16), rnd(1, 5, 16), mask], fixed=[3])
case("attention_bias", lambda q, k, v, bx, by: attend(q, k, v, 2, bx=bx, by=by),
     [rnd(1, 3, 16), rnd(1, 6, 16), rnd(1, 6, 16), rnd(1, 3, 3, 2), rnd(1, 3, 2, 2)])
case("attention_rope", lambda x, t: attend(x[..., :16], x[..., 16:32], x[..., 32:], 2, rope=t),
     [rnd(1, 6, 48), table], fixed=[1])
case("attention_rope_keys", lambda q, k, v, t: attend(q, k, v, 1, rope=t, rope_keys=4),
     [rnd(1, 3, 8), rnd(1, 5, 8), rnd(1, 5, 8), table], fixed=[3])

# norm.c
case("norm", lambda x, g, s: F.layer_norm(x, (9,), g, s, 1e-5), [rnd(2, 3, 9)], [rnd(9), rnd(9)])
case("norm_view", lambda x, g, s: F.layer_norm(x[..., 3:11], (8,), g, s, 1e-5), [rnd(2, 3, 12)], [rnd(8), rnd(8)])
for relu in (False, True):
    case("group_norm_relu" if relu else "group_norm",
         lambda x, g, s, relu=relu: (F.relu if relu else lambda v: v)(last(F.group_norm(first(x), 2, g, s, 1e-5))),
         [rnd(2, 2, 3, 8)], [rnd(8), rnd(8)])


# conv.c
def conv(x, w, b, act=lambda v: v, **kw):
    return act(last(F.conv2d(first(x), w, b, **kw)))


def windows(x, s):
    b, h, w, c = x.shape
    return x.view(b, h // s, s, w // s, s, c).transpose(2, 3).reshape(-1, s * s, c)


case("conv", lambda x, w, b: conv(x, w, b), [rnd(2, 4, 5, 4)], [rnd(4, 4, 3, 3, scale=0.3), rnd(4)])
case("conv_relu", lambda x, w, b: conv(x, w, b, F.relu, stride=2, padding=1), [rnd(1, 5, 6, 4)],
     [rnd(4, 4, 3, 3, scale=0.3), rnd(4)])
case("conv_gelu", lambda x, w: conv(x, w, None, F.gelu, padding=1), [rnd(1, 3, 3, 4)], [rnd(4, 4, 3, 3, scale=0.3)])
case("conv_groups", lambda x, w, b: conv(x, w, b, padding=1, groups=8), [rnd(1, 4, 3, 8)], [rnd(8, 1, 3, 3), rnd(8)])
case("conv_up2", lambda x, w, b: last(F.conv_transpose2d(first(x), w, b, stride=2)), [rnd(2, 2, 3, 5)],
     [rnd(5, 4, 2, 2), rnd(4)])
case("conv_up2_gelu", lambda x, w, b: F.gelu(last(F.conv_transpose2d(first(x), w, b, stride=2))), [rnd(1, 2, 3, 5)],
     [rnd(5, 4, 2, 2), rnd(4)])
case("patches", lambda x: first(x).unfold(2, 2, 2).unfold(3, 2, 2).permute(0, 2, 3, 1, 4, 5).flatten(3),
     [rnd(2, 4, 6, 3)])
case("window_partition", lambda x: windows(x, 2), [rnd(2, 4, 6, 3)])
case("window_merge", lambda x: x.view(2, 2, 3, 2, 2, 3).transpose(2, 3).reshape(2, 4, 6, 3), [rnd(12, 4, 3)])
case("max_pool2", lambda x: last(F.max_pool2d(first(x), 2)), [rnd(2, 4, 5, 3)])

# elementwise.c
case("add", lambda a, b: a + b, [rnd(2, 3, 4), rnd(2, 3, 4)])
case("add_suffix", lambda a, b: a + b, [rnd(2, 3, 4), rnd(1, 3, 4)])
case("add_row", lambda a, b: a + b, [rnd(2, 3, 4), rnd(4)])
case("add_view", lambda a, b: a[..., 1:5] + b, [rnd(2, 3, 6), rnd(3, 4)])
case("add_twice", lambda a: (a + a) + a * 3, [rnd(2, 3)])
case("multiply", lambda a, b: a * b, [rnd(2, 3, 4), rnd(2, 3, 4)])
case("multiply_suffix", lambda a, b: a[..., 1:5] * b, [rnd(2, 3, 6), rnd(3, 4)])
case("scale", lambda a: a * -2.5, [rnd(2, 7)])
case("scale_view", lambda a: a[..., 1:4] * 0.5, [rnd(2, 7)])
case("relu", F.relu, [rnd(3, 7)])
case("gelu", F.gelu, [rnd(3, 7)])
case("sigmoid_view", lambda x: torch.sigmoid(x[..., 2:7]), [rnd(3, 7)])
case("clamp", lambda x: x.clamp(-0.7, 0.9), [rnd(3, 7)])
case("inverse_sigmoid", lambda x: torch.log(x.clamp(0, 1).clamp(min=1e-3) / (1 - x.clamp(0, 1)).clamp(min=1e-3)),
     [torch.tensor([-0.5, -1e-3, 2e-4, 5e-3, 0.1, 0.3, 0.5, 0.77, 0.992, 0.9995, 1.01, 1.5]).double()])
case("detach", lambda x: x + x.detach() * 2, [rnd(2, 5)])

# shape.c
case("reshape", lambda x: x.view(3, 8) * 2, [rnd(2, 3, 4)])
case("columns", lambda x: torch.cat((x[..., 4:7], x[..., 1:3], x[..., 2:4][..., 1:]), -1), [rnd(2, 3, 8)])
case("rows", lambda x: x[1:3] * 2, [rnd(4, 2, 3)])
case("concat0", lambda a, b: torch.cat((a, b), 0), [rnd(2, 3), rnd(4, 3)])
case("concat1", lambda a, b: torch.cat((a, b.expand(2, -1, -1)), 1), [rnd(2, 3, 4), rnd(1, 2, 4)])
case("concat_last", lambda a, b: torch.cat((a, b), -1), [rnd(2, 3, 4), rnd(2, 3, 2)])
case("concat_pixels", lambda a, b: torch.cat((a, b.expand(2, -1, -1, -1)), 2), [rnd(2, 2, 3, 4), rnd(1, 2, 1, 4)])
case("pad_front", lambda x: torch.cat((torch.zeros(2, 2, 4).double(), x[..., 1:5]), 1), [rnd(2, 3, 6)])
case("copy", lambda x: x[..., 1:5], [rnd(2, 3, 6)])
case("repeat", lambda x: x.repeat(3, 1, 1), [rnd(1, 3, 4)])
case("gather_rows", lambda x: x[[2, 0, 2, 3]], [rnd(5, 6)])
case("gather_pixels", lambda x: x[[1, 1, 0]], [rnd(2, 3, 4)])
case("embed", lambda i, t: t[i], [torch.tensor([[3, 0, 3], [5, 1, 1]])], [rnd(6, 5)])
case("masked_mean", lambda x, m: (x * (1 - m)[..., None]).sum(1) / (1 - m).sum(1, keepdim=True).clamp(min=1),
     [rnd(3, 5, 6), torch.cat((mask, torch.ones(1, 5).double()))], fixed=[1])
case("mean", lambda x: x[..., 1:4].mean(1), [rnd(2, 5, 6)])
case("parameter", lambda x, p: x + p, [rnd(2, 3, 4)], [rnd(3, 4)])

# resize.c
case("upsample_add", lambda s, b: last(F.interpolate(first(s), size=(5, 7), mode="nearest")) + b,
     [rnd(2, 3, 3, 4), rnd(2, 5, 7, 4)])
case("upsample_add_shared", lambda s, b: last(F.interpolate(first(s), size=(4, 6), mode="nearest")) + b,
     [rnd(2, 2, 3, 4), rnd(1, 4, 6, 4)])
for name, size in (("resize_up", (7, 9)), ("resize_down", (3, 2)), ("resize_same", (4, 5))):
    case(name, lambda x, size=size: last(F.interpolate(first(x), size=size, mode="bilinear", align_corners=False)),
         [rnd(2, 4, 5, 3)])

# sample.c
boxes = torch.tensor([[0.3, 0.6, 4.7, 3.9], [2.2, 1.1, 2.5, 1.3], [-1.5, -0.5, 7.5, 6.0], [5.5, 4.2, 9.0, 8.0]])
case("roi_align", lambda x, b: last(torchvision.ops.roi_align(first(x), [b], 3)), [rnd(1, 5, 6, 4), boxes.double()],
     fixed=[1])
points = torch.tensor([[0.5, 0.5], [0.1, 0.83], [0.0, 0.0], [1.0, 0.97], [1.3, 0.2], [0.02, 0.4]])
case("point_sample",
     lambda x, p: F.grid_sample(first(x), (2 * p - 1)[None, :, None], align_corners=False)[0, :, :, 0].T,
     [rnd(1, 5, 6, 4), points.double()], fixed=[1])


# position.c
def sine(x, order, features):
    divisor = 10000.0 ** (2 * (torch.arange(features) // 2).double() / features)
    v = x[..., order, None] * 2 * math.pi / divisor
    return torch.stack((v[..., 0::2].sin(), v[..., 1::2].cos()), -1).flatten(-3)


def distances(b, axis, n):
    edges = torch.stack((b[..., axis] - b[..., 2 + axis] / 2, b[..., axis] + b[..., 2 + axis] / 2), -1)
    d = (torch.arange(n).double()[:, None] / n - edges[..., None, :]) * 8
    return d.sign() * (d.abs() + 1).log2() / 3


case("sine_embed", lambda x: sine(x, [1, 0, 2, 3], 8), [unit(2, 3, 4)])
case("sine_view", lambda x: sine(x[..., 1:3], [1], 6), [unit(3, 4)])
for axis in (0, 1):
    case(f"box_distances{axis}", lambda b, axis=axis: distances(b, axis, 5), [unit(2, 3, 4)])


def fourier(x, m):
    angle = 2 * math.pi * ((2 * x - 1) @ m)
    return torch.cat((angle.sin(), angle.cos()), -1)


case("fourier_embed", fourier, [unit(2, 3, 2)], [rnd(2, 5)], frozen=True)
case("fourier_view", lambda x, m: fourier(x[..., 1:3], m), [unit(4, 3)], [rnd(2, 5)], frozen=True)
case("attention_narrow", lambda q, k, v, m: attend(q, k, v, 4, mask=m),
     [rnd(2, 3, 16), rnd(2, 5, 16), rnd(2, 5, 16), mask], fixed=[3])

save_file({k: v.contiguous() for k, v in out.items()}, sys.argv[1])
