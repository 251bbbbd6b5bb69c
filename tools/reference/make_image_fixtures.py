"""Writes small picture files of every kind with what they decode to, and what the official resize makes of some.

    python3 make_image_fixtures.py --out tests/golden/io

Needs Pillow, numpy, torch, torchvision. cases.txt gets lines
    decode FILE EXPECTED.png TOLERANCE ORIENTATION     (EXPECTED is upright; tolerance in levels)
    resize FILE.png WIDTH HEIGHT EXPECTED.png
What Pillow decodes correctly is taken from it or checked against it; the rest follows from the samples themselves.
"""

import argparse
import io
import os
import struct
import zlib

import numpy as np
import torch
from PIL import Image, ImageOps
from torchvision.transforms import v2

WIDTH, HEIGHT = 37, 26


class Fixtures:
    def __init__(self, folder):
        self.folder, self.lines, self.written = folder, [], {}
        os.makedirs(folder, exist_ok=True)

    def file(self, name, data):
        with open(os.path.join(self.folder, name), "wb") as f:
            f.write(data)

    def expected(self, rgb):
        """Stores expected pixels once, however many files share them."""
        rgb = np.ascontiguousarray(rgb, np.uint8)
        key = (rgb.shape, rgb.tobytes())
        if key not in self.written:
            self.written[key] = "expected%d.png" % len(self.written)
            stream = io.BytesIO()
            Image.fromarray(rgb).save(stream, "PNG", optimize=True)
            self.file(self.written[key], stream.getvalue())
        return self.written[key]

    def decode(self, name, data, rgb=None, tolerance=0, orientation=1, check=True):
        """rgb None: as Pillow decodes it. check: Pillow must agree with the given rgb."""
        if rgb is None or check:
            with Image.open(io.BytesIO(data)) as im:
                by_pillow = np.array(ImageOps.exif_transpose(im).convert("RGB"))
            rgb = by_pillow if rgb is None else np.asarray(rgb, np.uint8)
            assert by_pillow.shape == rgb.shape and (by_pillow == rgb).all(), name
        self.file(name, data)
        self.lines.append("decode %s %s %d %d" % (name, self.expected(rgb), tolerance, orientation))

    def resize(self, rgb, width, height):
        image = v2.functional.to_image(Image.fromarray(rgb))
        out = v2.functional.resize(image, [height, width], antialias=True).numpy().transpose(1, 2, 0)
        self.lines.append("resize %s %d %d %s" % (self.expected(rgb), width, height, self.expected(out)))

    def close(self):
        self.file("cases.txt", ("\n".join(self.lines) + "\n").encode())


def picture(width=WIDTH, height=HEIGHT):
    """Smooth enough for JPEG, with an edge and a corner that tells the eight orientations apart."""
    y, x = np.mgrid[:height, :width].astype(float)
    blue = 128 + 90 * np.sin(x / 4) * np.cos(y / 5)
    rgb = np.stack([255 * x / max(width - 1, 1), 255 * y / max(height - 1, 1), blue], -1)
    rgb[(x - width * .6) ** 2 + (y - height * .4) ** 2 < (height * .25) ** 2] = (230, 40, 60)
    rgb[:3, :6] = (255, 255, 255)
    return rgb.round().astype(np.uint8)


def saved(im, kind, **options):
    stream = io.BytesIO()
    im.save(stream, kind, **options)
    return stream.getvalue()


def exif(orientation):
    e = Image.Exif()
    e[0x0112] = orientation
    return e.tobytes()


def jpegs(f, rgb):
    im = Image.fromarray(rgb)
    for name, options in (("444", dict(subsampling=0)), ("422", dict(subsampling=1)), ("420", dict(subsampling=2)),
                          ("progressive", dict(subsampling=2, progressive=True)),
                          ("restart", dict(subsampling=2, restart_marker_blocks=2)), ("low", dict(quality=10))):
        f.decode("jpeg_%s.jpg" % name, saved(im, "JPEG", **{"quality": 90, **options}), tolerance=2)
    f.decode("jpeg_gray.jpg", saved(im.convert("L"), "JPEG", quality=90), tolerance=1)
    cmyk = Image.fromarray(np.dstack([255 - rgb, np.full(rgb.shape[:2], 40, np.uint8)]), "CMYK")
    data = saved(cmyk, "JPEG", quality=92)
    f.decode("jpeg_cmyk.jpg", data, tolerance=2)
    at = data.index(b"Adobe") + 11     # the byte that says how the four inks are coded: 2 is YCCK
    f.decode("jpeg_ycck.jpg", data[:at] + b"\2" + data[at + 1:], tolerance=3)
    for o in range(1, 9):
        f.decode("exif%d.jpg" % o, saved(im, "JPEG", quality=85, exif=exif(o)), tolerance=2, orientation=o)
    xmp = b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:Description tiff:Orientation="6"/></x:xmpmeta>'
    f.decode("xmp6.jpg", saved(im, "JPEG", quality=85, xmp=xmp), tolerance=2, orientation=6)
    f.decode("one.jpg", saved(Image.fromarray(rgb[:1, :1]), "JPEG"), tolerance=1)


def pack_samples(rows, bits):
    """[height, n] samples to bytes, each row padded to a whole byte."""
    if bits == 16:
        return [r.astype(">u2").tobytes() for r in rows]
    if bits == 8:
        return [r.astype(np.uint8).tobytes() for r in rows]
    out = []
    for r in rows:
        ones = (r[:, None] >> np.arange(bits - 1, -1, -1) & 1).astype(np.uint8).reshape(-1)
        out.append(np.packbits(ones).tobytes())
    return out


def png(samples, bits, colour, palette=None, interlaced=False, extra=b""):
    """samples [height, width, channels]; own writer, because Pillow does not write most kinds."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    h, w, _ = samples.shape
    passes = [(0, 0, 1, 1)]
    if interlaced:
        passes = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]
    raw = b""
    for x, y, dx, dy in passes:
        part = samples[y::dy, x::dx]
        if part.size:
            raw += b"".join(b"\0" + row for row in pack_samples(part.reshape(part.shape[0], -1), bits))
    out = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", w, h, bits, colour, 0, 0, int(interlaced)))
    if palette is not None:
        out += chunk(b"PLTE", palette.astype(np.uint8).tobytes())
    return out + extra + chunk(b"IDAT", zlib.compress(raw, 9)) + chunk(b"IEND", b"")


def gray3(v):
    return np.repeat(np.asarray(v, np.uint8)[..., None], 3, -1)


def pngs(f, rgb, rng):
    gray16 = (rgb[..., 0].astype(np.uint32) * 256 + rgb[..., 1]).astype(np.uint16)
    for bits in (1, 2, 4, 8):
        level = rgb[..., 0] >> (8 - bits)
        f.decode("png_gray%d.png" % bits, png(level[..., None], bits, 0), gray3(level * (255 // (2 ** bits - 1))))
        palette = rng.integers(0, 256, (2 ** bits, 3))
        f.decode("png_palette%d.png" % bits, png(level[..., None], bits, 3, palette), palette[level])
        f.decode("png_palette%d_interlaced.png" % bits, png(level[..., None], bits, 3, palette, True), palette[level])
    f.decode("png_gray16.png", png(gray16[..., None], 16, 0), gray3(gray16 >> 8), check=False)
    alpha = rng.integers(0, 256, rgb.shape[:2] + (1,)).astype(np.uint16)
    wide = rgb.astype(np.uint16) * 256 + rng.integers(0, 256, rgb.shape).astype(np.uint16)
    f.decode("png_rgb8.png", png(rgb, 8, 2), rgb)
    f.decode("png_rgb16.png", png(wide, 16, 2), rgb)
    f.decode("png_rgba8.png", png(np.dstack([rgb, alpha]), 8, 6), rgb)
    f.decode("png_rgba16.png", png(np.dstack([wide, alpha * 257]), 16, 6), rgb)
    f.decode("png_rgba8_interlaced.png", png(np.dstack([rgb, alpha]), 8, 6, interlaced=True), rgb)
    f.decode("png_gray_alpha8.png", png(np.dstack([rgb[..., :1], alpha]), 8, 4), gray3(rgb[..., 0]))
    f.decode("png_gray_alpha16.png", png(np.dstack([gray16[..., None], alpha * 257]), 16, 4), gray3(gray16 >> 8),
             check=False)
    for o in (3, 6):
        f.decode("png_exif%d.png" % o, saved(Image.fromarray(rgb), "PNG", exif=exif(o)), orientation=o)
    transparent = saved(Image.fromarray(rgb).convert("P"), "PNG", transparency=3)
    f.decode("png_palette_transparent.png", transparent)


def webps(f, rgb, rng):
    im = Image.fromarray(rgb)
    alpha = Image.fromarray(np.dstack([rgb, rng.integers(1, 256, rgb.shape[:2]).astype(np.uint8)]))
    f.decode("webp_lossy.webp", saved(im, "WEBP", quality=80), tolerance=1)
    f.decode("webp_lossless.webp", saved(im, "WEBP", lossless=True), rgb)
    f.decode("webp_lossless_alpha.webp", saved(alpha, "WEBP", lossless=True, exact=True), rgb)
    f.decode("webp_lossy_alpha.webp", saved(alpha, "WEBP", quality=80), tolerance=1)
    f.decode("webp_exif8.webp", saved(im, "WEBP", lossless=True, exif=exif(8)), orientation=8)
    other = Image.fromarray(rgb[::-1].copy())
    f.decode("webp_animated.webp", saved(im, "WEBP", lossless=True, save_all=True, append_images=[other],
                                           duration=50), rgb)


def tiff(samples, bits=8, photometric=2, planar=1, tile=None, big_endian=False, palette=None, deflate=False, extra=None,
         orientation=None, big=False):
    """Minimal writer for what Pillow does not write: tiles, planes, 16 bit, either byte order, BigTIFF."""
    e = ">" if big_endian else "<"
    h, w, c = samples.shape
    def packed(a):
        rows = pack_samples(a.reshape(a.shape[0], -1), bits)
        data = b"".join(rows)
        if bits == 16 and not big_endian:
            data = np.frombuffer(data, ">u2").astype("<u2").tobytes()
        return zlib.compress(data, 9) if deflate else data
    planes = [samples] if planar == 1 else [samples[..., i:i + 1] for i in range(c)]
    chunks, rows = [], 8
    for p in planes:
        if tile:
            tw, th = tile
            padded = np.zeros((-(-h // th) * th, -(-w // tw) * tw, p.shape[2]), p.dtype)
            padded[:h, :w] = p
            chunks += [packed(padded[y:y + th, x:x + tw]) for y in range(0, h, th) for x in range(0, w, tw)]
        else:
            chunks += [packed(p[y:y + rows]) for y in range(0, h, rows)]
    body, offsets = b"", []
    for data in chunks:
        offsets.append((16 if big else 8) + len(body))
        body += data + b"\0" * (len(data) % 2)
    tags = {256: (4, [w]), 257: (4, [h]), 258: (3, [bits] * c), 259: (3, [8 if deflate else 1]),
            262: (3, [photometric]), 277: (3, [c]), 284: (3, [planar])}
    if tile:
        tags.update({322: (3, [tile[0]]), 323: (3, [tile[1]]), 324: (4, offsets), 325: (4, [len(d) for d in chunks])})
    else:
        tags.update({273: (4, offsets), 278: (3, [rows]), 279: (4, [len(d) for d in chunks])})
    if palette is not None:
        tags[320] = (3, (palette.T.astype(int) * 257).reshape(-1).tolist())
    if extra is not None:
        tags[338] = (3, [extra])
    if orientation is not None:
        tags[274] = (3, [orientation])
    wide, count_kind, room = ("Q", "Q", 8) if big else ("I", "H", 4)
    entries, at, spill = b"", (16 if big else 8) + len(body), b""
    entry_size = 20 if big else 12
    spill_at = at + struct.calcsize(e + count_kind) + len(tags) * entry_size + room
    for tag in sorted(tags):
        kind, values = tags[tag]
        data = struct.pack(e + ("H" if kind == 3 else "I") * len(values), *values)
        if len(data) > room:
            field, spill = struct.pack(e + wide, spill_at + len(spill)), spill + data + b"\0" * (len(data) % 2)
        else:
            field = data.ljust(room, b"\0")
        entries += struct.pack(e + "HH" + wide, tag, kind, len(values)) + field
    head = (b"MM" if big_endian else b"II") + struct.pack(e + "H", 43 if big else 42)
    head += struct.pack(e + "HHQ", 8, 0, at) if big else struct.pack(e + "I", at)
    return head + body + struct.pack(e + count_kind, len(tags)) + entries + b"\0" * room + spill


def tiffs(f, rgb, rng):
    im, gray = Image.fromarray(rgb), rgb[..., :1]
    wide = rgb.astype(np.uint16) * 256 + rng.integers(0, 256, rgb.shape).astype(np.uint16)
    for name, compression in (("raw", None), ("lzw", "tiff_lzw"), ("deflate", "tiff_adobe_deflate"),
                              ("packbits", "packbits")):
        f.decode("tiff_%s.tif" % name, saved(im, "TIFF", compression=compression), rgb)
    f.decode("tiff_jpeg.tif", saved(im, "TIFF", compression="jpeg", quality=90), tolerance=2)
    f.decode("tiff_group4.tif", saved(im.convert("1"), "TIFF", compression="group4"))
    f.decode("tiff_pages.tif", saved(im, "TIFF", save_all=True, append_images=[Image.new("RGB", (5, 5))]), rgb)
    f.decode("tiff_gray_white.tif", tiff(255 - gray, photometric=0), gray3(gray[..., 0]))
    for bits in (1, 4):
        level = gray >> (8 - bits)
        f.decode("tiff_gray%d.tif" % bits, tiff(level, bits, 1), gray3(level[..., 0] * (255 // (2 ** bits - 1))))
    f.decode("tiff_gray16.tif", tiff(wide[..., :1], 16, 1), gray3(gray[..., 0]), check=False)
    f.decode("tiff_rgb16_big_endian.tif", tiff(wide, 16, big_endian=True, deflate=True), rgb)
    f.decode("tiff_rgb16_tiles.tif", tiff(wide, 16, tile=(16, 16)), rgb)
    f.decode("tiff_tiles.tif", tiff(rgb, tile=(16, 32), deflate=True), rgb)
    f.decode("tiff_planes.tif", tiff(rgb, planar=2), rgb)
    f.decode("tiff_planes_tiles.tif", tiff(rgb, planar=2, tile=(32, 16)), rgb, check=False)
    f.decode("tiff_big.tif", tiff(rgb, big=True), rgb)
    palette = rng.integers(0, 256, (256, 3))
    f.decode("tiff_palette8.tif", tiff(gray, 8, 3, palette=palette), palette[gray[..., 0]])
    palette = rng.integers(0, 256, (16, 3))
    f.decode("tiff_palette4.tif", tiff(gray >> 4, 4, 3, palette=palette), palette[gray[..., 0] >> 4])
    alpha = rng.integers(0, 256, gray.shape).astype(np.uint8)
    f.decode("tiff_rgba.tif", tiff(np.dstack([rgb, alpha]), extra=2), rgb)
    multiplied = (rgb.astype(int) * alpha // 255).astype(np.uint8)
    f.decode("tiff_rgba_premultiplied.tif", tiff(np.dstack([multiplied, alpha]), extra=1))
    f.decode("tiff_orientation5.tif", tiff(rgb, orientation=5), rgb.transpose(1, 0, 2), orientation=5)
    f.decode("tiff_cmyk.tif", saved(im.convert("CMYK"), "TIFF"), tolerance=1)


def pnms(f, rgb, rng):
    size = b"%d %d" % (WIDTH, HEIGHT)
    bit, gray = (rgb[..., 0] > 128).astype(np.uint8), rgb[..., 0]
    text = lambda a: b"\n".join(b" ".join(b"%d" % v for v in row) for row in a.reshape(a.shape[0], -1))
    f.decode("p1.pbm", b"P1\n# a comment\n" + size + b"\n" + text(1 - bit), gray3(bit * 255))
    f.decode("p1_dense.pbm", b"P1 " + size + b"\n" + text(1 - bit).replace(b" ", b""), gray3(bit * 255))
    f.decode("p2.pgm", b"P2 " + size + b" 255\n" + text(gray), gray3(gray))
    f.decode("p3.ppm", b"P3\n" + size + b"\n# x\n255 " + text(rgb), rgb)
    f.decode("p4.pbm", b"P4\n" + size + b"\n" + b"".join(pack_samples(1 - bit, 1)), gray3(bit * 255))
    f.decode("p5.pgm", b"P5\n" + size + b"\n255\n" + gray.tobytes(), gray3(gray))
    f.decode("p5_max100.pgm", b"P5\n" + size + b"\n100\n" + (gray // 3).tobytes())
    f.decode("p6.ppm", b"P6\n#c\n" + size + b"\n255\n" + rgb.tobytes(), rgb)
    wide = rng.integers(0, 65536, rgb.shape).astype(np.uint16)
    f.decode("p6_16.ppm", b"P6\n" + size + b"\n65535\n" + wide.astype(">u2").tobytes())
    pam = b"P7\nWIDTH %d\nHEIGHT %d\nDEPTH %%d\nMAXVAL 255\nTUPLTYPE %%s\nENDHDR\n" % (WIDTH, HEIGHT)
    alpha = rng.integers(0, 256, rgb.shape[:2]).astype(np.uint8)
    f.decode("p7_rgba.pam", pam % (4, b"RGB_ALPHA") + np.dstack([rgb, alpha]).tobytes(), rgb, check=False)
    f.decode("p7_gray.pam", pam % (1, b"GRAYSCALE") + gray.tobytes(), gray3(gray), check=False)


def bmp(rows, bits, compression=0, palette=b"", masks=b"", height=HEIGHT, header=40):
    """rows: pixel data as stored. header 12 is OS/2's."""
    at = 14 + header + (len(masks) if header == 40 else 0) + len(palette)
    if header == 12:
        info = struct.pack("<IHHHH", 12, WIDTH, height, 1, bits)
    else:
        info = struct.pack("<IiiHHIIiiII", header, WIDTH, height, 1, bits, compression, len(rows), 2835, 2835,
                           len(palette) // 4, 0)
        info = (info + masks).ljust(header, b"\0") if header > 40 else info + masks
    return b"BM" + struct.pack("<IHHI", at + len(rows), 0, 0, at) + info + palette + rows


def bmp_rows(rows):
    return b"".join(r + b"\0" * (-len(r) % 4) for r in rows)


def rle8(rows):
    """Runs, literal stretches and ends of lines."""
    out = b""
    for r in rows:
        x = 0
        while x < len(r):
            n = 1
            while x + n < len(r) and r[x + n] == r[x] and n < 255:
                n += 1
            if n == 1 and x + 5 <= len(r):
                out += b"\0\5" + bytes(r[x:x + 5]) + b"\0"
                n = 5
            else:
                out += bytes([n, r[x]])
            x += n
        out += b"\0\0"
    return out[:-2] + b"\0\1"


def rle4(rows):
    out = b""
    for r in rows:
        for x in range(0, len(r), 6):
            part = [int(v) for v in r[x:x + 6]]
            if len(part) == 6:
                out += b"\0\6" + bytes([part[i] << 4 | part[i + 1] for i in (0, 2, 4)]) + b"\0"
            else:
                out += b"".join(bytes([1, v << 4]) for v in part)
        out += b"\0\0"
    return out[:-2] + b"\0\1"


def bmps(f, rgb, rng):
    up, gray = rgb[::-1], rgb[::-1, :, 0]
    bgr = bmp_rows([r[:, ::-1].tobytes() for r in up])
    f.decode("bmp24.bmp", bmp(bgr, 24), rgb)
    f.decode("bmp24_top_down.bmp", bmp(bmp_rows([r[:, ::-1].tobytes() for r in rgb]), 24, height=-HEIGHT), rgb)
    f.decode("bmp24_os2.bmp", bmp(bgr, 24, header=12), rgb)
    padded = np.dstack([up[..., ::-1], rng.integers(0, 256, up.shape[:2]).astype(np.uint8)])
    f.decode("bmp32.bmp", bmp(padded.tobytes(), 32), rgb)
    masks = struct.pack("<IIII", 0xff0000, 0xff00, 0xff, 0xff000000)
    f.decode("bmp32_v5.bmp", bmp(padded.tobytes(), 32, 3, masks=masks, header=124), rgb)
    masks = struct.pack("<III", 0xff, 0xff00, 0xff0000)
    swapped = np.dstack([up, padded[..., 3:]])
    f.decode("bmp32_fields.bmp", bmp(swapped.tobytes(), 32, 3, masks=masks), rgb, check=False)
    five, six = rgb.astype(int) >> 3, rgb.astype(int) >> 2
    v555 = (five[..., 0] << 10 | five[..., 1] << 5 | five[..., 2]).astype("<u2")[::-1]
    f.decode("bmp16.bmp", bmp(bmp_rows([r.tobytes() for r in v555]), 16), five * 255 // 31)
    v565 = (five[..., 0] << 11 | six[..., 1] << 5 | five[..., 2]).astype("<u2")[::-1]
    want = np.stack([five[..., 0] * 255 // 31, six[..., 1] * 255 // 63, five[..., 2] * 255 // 31], -1)
    masks = struct.pack("<III", 0xf800, 0x7e0, 0x1f)
    f.decode("bmp16_565.bmp", bmp(bmp_rows([r.tobytes() for r in v565]), 16, 3, masks=masks), want)
    for bits in (1, 4, 8):
        level = gray >> (8 - bits)
        palette = rng.integers(0, 256, (2 ** bits, 3))
        four = b"".join(bytes([b, g, r, 0]) for r, g, b in palette.tolist())
        f.decode("bmp%d.bmp" % bits, bmp(bmp_rows(pack_samples(level, bits)), bits, palette=four), palette[level[::-1]])
        if bits == 8:
            flat = level & 0xf0
            f.decode("bmp8_rle.bmp", bmp(rle8(flat), 8, 1, four), palette[flat[::-1]])
            jump = b"\0\2\3\2" + bytes([WIDTH - 3, 7, 0, 1])     # three to the right, two up, a run, the end
            want = np.zeros(level.shape, int)
            want[2, 3:] = 7
            f.decode("bmp8_rle_jump.bmp", bmp(jump, 8, 1, four), palette[want[::-1]], check=False)
        if bits == 4:
            f.decode("bmp4_rle.bmp", bmp(rle4(level), 4, 2, four), palette[level[::-1]])
            three = b"".join(bytes([b, g, r]) for r, g, b in palette.tolist())
            rows = bmp_rows(pack_samples(level, 4))
            f.decode("bmp4_os2.bmp", bmp(rows, 4, palette=three, header=12), palette[level[::-1]])


def resizes(f, rgb, rng):
    noise = rng.integers(0, 256, (31, 45, 3)).astype(np.uint8)
    for width, height in ((14, 14), (28, 42), (45, 31), (7, 60), (3, 31), (100, 9)):
        f.resize(noise, width, height)
    f.resize(rgb[:1, :1], 14, 14)
    f.resize(noise[:1], 21, 14)
    f.resize(noise[:, :1], 14, 21)
    f.resize(picture(300, 20), 14, 14)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    a = ap.parse_args()
    rng, rgb, f = np.random.default_rng(0), picture(), Fixtures(a.out)
    jpegs(f, rgb)
    pngs(f, rgb, rng)
    webps(f, rgb, rng)
    tiffs(f, rgb, rng)
    pnms(f, rgb, rng)
    bmps(f, rgb, rng)
    resizes(f, rgb, rng)
    f.close()
    print("%d cases" % len(f.lines))


if __name__ == "__main__":
    main()
