#!/usr/bin/env python3
"""cli.py - the program as its users meet it: options, exit status, files, interruption. Usage: cli.py PATH-OF-SAMITE

Standard library only. Everything runs with formula:tiny, whose answers mean nothing but are the same everywhere.
"""

import json
import os
import resource
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest
import zlib

SAMITE = None
GOLDEN = os.path.join(os.path.dirname(os.path.abspath(__file__)), "golden")
ALL = ["--score", "0", "--max-det", "3"]          # something is always found


def environment(model):
    """Tests run beside each other: waiting threads must not burn time that others need."""
    e = {k: v for k, v in os.environ.items() if k != "SAMITE_MODEL"}
    e.update({"OMP_WAIT_POLICY": "passive", "SAMITE_NO_CACHE": "1"}, **({"SAMITE_MODEL": model} if model else {}))
    return e


def run(*args, data=b"", model="formula:tiny"):
    return subprocess.run([SAMITE, *args], input=data, env=environment(model), stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=600)


def start(*args):
    return subprocess.Popen([SAMITE, *args], env=environment("formula:tiny"), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def read(*path):
    with open(os.path.join(*path), "rb") as f:
        return f.read()


def load(*path):
    return json.loads(read(*path))


def ppm(width=40, height=30, seed=1):
    body = bytes((x * 5 + y * 3 * seed + c * 70) % 256 for y in range(height) for x in range(width) for c in range(3))
    return b"P6\n%d %d\n255\n" % (width, height) + body


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def png(width, height, orientation=None):
    rows = b"".join(b"\0" + bytes((x * 7 + y * 11 + c * 50) % 256 for x in range(width) for c in range(3))
                    for y in range(height))
    exif = b""
    if orientation:
        exif = chunk(b"eXIf", b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01" + struct.pack(">HH", orientation, 0) +
                     b"\0\0\0\0")
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + exif +
            chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def read_gray_png(path):
    """Width, height and samples of a gray PNG with 8 or 16 bits."""
    data = read(path)
    assert data[:8] == b"\x89PNG\r\n\x1a\n" and data[-8:-4] == b"IEND", path + " is not whole"
    at, body = 8, b""
    while at < len(data):
        size, kind = struct.unpack(">I4s", data[at:at + 8])
        if kind == b"IHDR":
            width, height, bits, colour = struct.unpack(">IIBB", data[at + 8:at + 18])
        if kind == b"IDAT":
            body += data[at + 8:at + 8 + size]
        at += size + 12
    assert colour == 0 and bits in (1, 8, 16), (colour, bits)
    step = max(1, bits // 8)
    line = (width * bits + 7) // 8
    raw, before, rows = zlib.decompress(body), bytearray(line), []
    for y in range(height):
        kind, now = raw[y * (line + 1)], bytearray(raw[y * (line + 1) + 1:(y + 1) * (line + 1)])
        for i in range(line):
            left = now[i - step] if i >= step else 0
            up, corner = before[i], before[i - step] if i >= step else 0
            guess = left + up - corner
            nearest = min((left, up, corner), key=lambda v: abs(guess - v))
            now[i] = (now[i] + (0, left, up, (left + up) // 2, nearest)[kind]) & 255
        rows.append(now)
        before = now
    if bits == 16:
        values = [v for row in rows for v in struct.unpack(">%dH" % width, bytes(row))]
    elif bits == 1:
        values = [(row[x // 8] >> (7 - x % 8) & 1) * 255 for row in rows for x in range(width)]
    else:
        values = [v for row in rows for v in row]
    return width, height, values


def decode_rle(text, height, width):
    """COCO's compressed run lengths as a list of rows."""
    counts, at = [], 0
    while at < len(text):
        value, shift, more = 0, 0, True
        while more:
            c = ord(text[at]) - 48
            value |= (c & 31) << shift
            shift += 5
            more = bool(c & 32)
            at += 1
            if not more and c & 16:
                value -= 1 << shift
        if len(counts) > 2:
            value += counts[-2]
        counts.append(value)
    flat = [bit for i, n in enumerate(counts) for bit in [i % 2] * n]
    assert len(flat) == height * width, "run lengths do not fill the picture"
    return [[flat[x * height + y] for x in range(width)] for y in range(height)]


class Case(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="samite-cli-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.photo = self.write("photo.ppm", ppm())

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, data):
        path = self.path(name) if isinstance(name, str) else os.path.join(self.folder.encode(), name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "wb") as f:
            f.write(data)
        return path

    def fails(self, status, says, *args, **more):
        r = run(*args, **more)
        message = r.stderr.decode(errors="replace")
        self.assertEqual(r.returncode, status, (args, message))
        self.assertEqual(len(message.splitlines()), 1, (args, message))
        self.assertTrue(message.startswith("samite: "), message)
        self.assertIn(says, message, args)
        return r

    def works(self, *args, **more):
        r = run(*args, **more)
        self.assertEqual(r.returncode, 0, (args, r.stderr.decode(errors="replace")))
        return r

    def json_of(self, *args, **more):
        return json.loads(self.works("segment", *args, "--json", *ALL, **more).stdout)

    def files(self, *names):
        root = self.path(*names)
        return sorted(os.path.relpath(os.path.join(d, f), root) for d, _, found in os.walk(root) for f in found)


class Usage(Case):
    def test_help_and_version(self):
        self.assertIn(b"segment", self.works("--help").stdout)
        self.assertIn(b"Examples:", self.works("--help").stdout)
        self.assertRegex(self.works("--version").stdout, rb"^samite \d+\.\d+\.\d+\n$")
        for command in ("segment", "info", "convert", "align", "bench", "doctor"):
            text = self.works(command, "--help").stdout
            self.assertIn(b"Examples:", text)
            self.assertEqual(text, self.works("help", command).stdout)

    def test_suggestions(self):
        self.fails(2, "did you mean samite segment?", "segmnet")
        self.fails(2, "did you mean --score?", "segment", self.photo, "--scor", "0.5")
        self.fails(2, "did you mean --text?", "segment", self.photo, "--txt=dog")
        self.fails(2, "samite --help", "zzzzzzzz")
        self.fails(2, "no command")

    def test_option_values(self):
        p = self.photo
        for says, args in (
                ("needs a value", ["--text"]), ("needs a value", ["--text", "--json"]),
                ("takes no value", ["--json=1"]), ("from 0 to 1", ["--score", "1.5"]),
                ("from 0 to 1", ["--score", "nan"]), ("from 0 to 1", ["--score", "0.5x"]),
                ("whole number", ["--threads", "1.5"]), ("whole number", ["--threads", "0"]),
                ("one of ref|avx2|avx512", ["--cpu", "sse"]), ("one of f32|bf16", ["--precision", "f"]),
                ("a size such as", ["--memory-limit", "8X"]), ("a size such as", ["--memory-limit", "-1"]),
                ("from 1 to N", ["--shard", "0/3"]), ("from 1 to N", ["--shard", "4/3"]),
                ("from 1 to N", ["--shard", "2"]), ("from 1 to N", ["--shard", "1/x"]),
                ("unknown option -z", ["-z"]), ("unknown option", ["--no-such-thing-at-all"])):
            with self.subTest(args):
                self.fails(2, says, "segment", p, *args)

    def test_boxes(self):
        p = self.photo
        for says, box in (("four numbers", "1,2,3"), ("four numbers", "1,2,3,4,5"), ("four numbers", "a,2,3,4"),
                          ("four numbers", "1,2,3,"), ("four numbers", "1,2,3,inf"), ("four numbers", "1,2,3,nan"),
                          ("less than X1", "9,2,3,4"), ("less than X1", "3,4,3,9"), ("from 0", "-1,2,3,4"),
                          ("from 0", "1,2,1e30,4"), ("40 x 30", "1,2,41,4"), ("40 x 30", "1,2,9,31")):
            with self.subTest(box):
                self.fails(2, says, "segment", p, "--like", box)
        self.fails(2, "one --text at most", "segment", p, "--text", "a", "--text", "b", "--like", "1,2,9,9")
        self.fails(2, "nothing to look for", "segment", p)

    def test_other_usage(self):
        self.fails(2, "something is missing", "segment", "--text", "dog")
        self.fails(2, "--out", "segment", self.photo, "--text", "dog", "--resume")
        self.fails(2, "exclude", "segment", self.photo, "--text", "dog", "--json", "--jsonl")
        self.fails(2, "folder of the pictures", "segment", self.folder, "--text", "dog", "--out", self.folder)
        self.fails(2, "one argument too many", "info", "a", "b")
        self.fails(2, "something is missing", "convert", "formula:tiny")
        self.fails(2, ".safetensors or .pt", "convert", "formula:tiny", self.path("x.onnx"))
        self.fails(2, "one of them", "align")
        self.fails(2, "--image FILE --text", "align", "--against", "formula:tiny")

    def test_spellings(self):
        a = self.works("segment", self.photo, "--text", "dog", "--json", *ALL).stdout
        b = self.works("segment", "--text=dog", "--json", "-mformula:tiny", *ALL, "--", self.photo).stdout
        self.assertEqual(a, b)


class Input(Case):
    def test_unusable(self):
        self.fails(3, "no-such.pt", "segment", self.photo, "--text", "dog", "-m", self.path("no-such.pt"))
        self.fails(3, "no-such.jpg", "segment", self.path("no-such.jpg"), "--text", "dog")
        self.fails(2, "formula", "segment", self.photo, "--text", "dog", "-m", "formula:huge")
        self.fails(2, "seed=N", "segment", self.photo, "--text", "dog", "-m", "formula:tiny,seed=" + "9" * 30)
        os.makedirs(self.path("empty"))
        self.fails(3, "no pictures in", "segment", self.path("empty"), "--text", "dog")
        self.fails(3, "big.ppm", "segment", self.write("big.ppm", b"P6 1000000 1000000 255\n"), "--text", "dog")
        self.fails(3, "bad.png", "segment", self.write("bad.png", png(9, 9)[:60]), "--text", "dog")
        self.fails(3, "photo.ppm", "segment", self.photo, "--text", "dog", "--out", self.path("photo.ppm", "x"))

    def test_sizes(self):
        self.fails(2, "", "segment", self.photo, "--text", "dog", "--size", "57")
        for width, height in ((1, 1), (1, 200), (300, 2)):
            d = self.json_of(self.write("p.ppm", ppm(width, height)), "--text", "dog")
            self.assertEqual((d["width"], d["height"]), (width, height))

    def test_standard_input(self):
        named, piped = self.json_of(self.photo, "--text", "dog"), self.json_of("-", "--text", "dog", data=ppm())
        self.assertEqual(piped["file"], "-")
        self.assertEqual(named["prompts"], piped["prompts"])
        self.fails(3, "standard input", "segment", "-", "--text", "dog", data=b"")

    def test_exif(self):
        path = self.write("turned.png", png(30, 20, orientation=6))
        d = self.json_of(path, "--text", "dog")
        self.assertEqual((d["width"], d["height"], d["exif_orientation"], d["exif_applied"]), (20, 30, 6, True))
        d = self.json_of(path, "--text", "dog", "--no-exif")
        self.assertEqual((d["width"], d["height"], d["exif_orientation"], d["exif_applied"]), (30, 20, 6, False))

    def test_folder_order(self):
        for name in ("a10.ppm", "a9.ppm", "notes.txt", "b.PPM", ".hidden.ppm", "sub/c.ppm"):
            self.write("in/" + name, ppm())
        names = [os.path.relpath(d["file"], self.path("in")) for d in self.json_of(self.path("in"), "--text", "dog")]
        self.assertEqual(names, ["a9.ppm", "a10.ppm", "b.PPM"])
        deep = self.json_of(self.path("in"), "--text", "dog", "--recursive")
        self.assertIn(self.path("in", "sub", "c.ppm"), [d["file"] for d in deep])


class Answers(Case):
    def test_json(self):
        d = self.json_of(self.photo, "--text", "dog", "--text", "a red car")
        self.assertEqual((d["file"], d["width"], d["height"], d["model"]), (self.photo, 40, 30, "formula:tiny"))
        self.assertEqual([p["text"] for p in d["prompts"]], ["dog", "a red car"])
        numbers = []
        for p in d["prompts"]:
            self.assertTrue(0 <= p["presence"] <= 1)
            self.assertFalse(p["cut"])
            scores = [i["score"] for i in p["instances"]]
            self.assertEqual(scores, sorted(scores, reverse=True))
            self.assertEqual(len(scores), 3)
            for i in p["instances"]:
                numbers.append((i["id"], i["score"]))
                x0, y0, x1, y1 = i["box"]
                self.assertTrue(0 <= x0 <= x1 <= 40 and 0 <= y0 <= y1 <= 30, i["box"])
                self.assertEqual(i["segmentation"]["size"], [30, 40])
                mask = decode_rle(i["segmentation"]["counts"], 30, 40)
                self.assertEqual(sum(map(sum, mask)), i["area"])
        numbers.sort()
        self.assertEqual([n for n, _ in numbers], [1, 2, 3, 4, 5, 6])
        self.assertEqual([s for _, s in numbers], sorted((s for _, s in numbers), reverse=True))

    def test_shapes_of_json(self):
        one = self.works("segment", self.photo, "--text", "dog", "--json", *ALL)
        self.assertIsInstance(json.loads(one.stdout), dict)
        many = self.works("segment", self.folder, "--text", "dog", "--json", *ALL)
        self.assertIsInstance(json.loads(many.stdout), list)
        lines = self.works("segment", self.photo, self.write("q.ppm", ppm()), "--text", "dog", "--jsonl", *ALL)
        self.assertEqual([json.loads(x)["width"] for x in lines.stdout.splitlines()], [40, 40])

    def test_each_text_alone_gives_the_same(self):
        both = self.json_of(self.photo, "--text", "dog", "--text", "cat")
        for p in both["prompts"]:
            alone = self.json_of(self.photo, "--text", p["text"])["prompts"][0]
            self.assertEqual([(i["score"], i["box"]) for i in p["instances"]],
                             [(i["score"], i["box"]) for i in alone["instances"]])

    def test_threads_and_levels(self):
        one = self.json_of(self.photo, "--text", "dog", "--threads", "1")
        two = self.json_of(self.photo, "--text", "dog", "--threads", "2")
        self.assertEqual(one, two)
        self.json_of(self.photo, "--text", "dog", "--cpu", "ref")

    def test_example_boxes(self):
        alone = self.json_of(self.photo, "--like", "5,5,20,20")["prompts"]
        self.assertIsNone(alone[0]["text"])
        self.assertEqual(alone[0]["boxes"], [{"box": [5, 5, 20, 20], "like": True}])
        both = self.json_of(self.photo, "--text", "dog", "--like", "5,5,20,20", "--unlike", "0,0,40,30")["prompts"]
        self.assertEqual([b["like"] for b in both[0]["boxes"]], [True, False])
        self.assertNotEqual(alone[0]["presence"], both[0]["presence"])

    def test_clicks(self):
        one = self.json_of(self.photo, "--point", "20,15")
        self.assertEqual(one["prompts"], [])
        self.assertEqual(one["click"]["points"], [[20, 15, True]])
        self.assertEqual(len(one["click"]["instances"]), 1)
        out = self.path("clicks")
        self.works("segment", self.photo, "--point", "20,15", "--point", "3,4,neg", "--multimask", "--out", out)
        coco = load(out, "result.json")
        self.assertEqual([a["id"] for a in coco["annotations"]], [1, 2, 3])
        self.assertEqual(coco["categories"][0]["name"], "object")
        mask = os.path.join(out, "masks", os.listdir(os.path.join(out, "masks"))[0])
        again = self.json_of(self.photo, "--mask", mask, "--box", "2,2,30,25")["click"]
        self.assertEqual(again["box"], [2, 2, 30, 25])
        self.assertEqual(len(again["instances"]), 1)

    def test_kept_logits_are_refined(self):
        kept, later = self.path("a.safetensors"), self.path("b.safetensors")
        first = self.json_of(self.photo, "--point", "20,15", "--multimask", "--save-logits", kept)["click"]["instances"]
        self.assertEqual(struct.unpack("<Q", read(kept)[:8])[0] + 8 + 3 * 32 * 32 * 4, len(read(kept)))
        best = self.json_of(self.photo, "--logits", kept, "--save-logits", later)["click"]
        third = self.json_of(self.photo, "--logits", kept, "--pick", "3")["click"]
        self.assertEqual((best["logits"], len(first), len(best["instances"])), (kept, 3, 1))
        self.assertNotEqual(best["instances"], third["instances"])
        self.assertEqual(len(read(later)), len(read(kept)) - 2 * 32 * 32 * 4)
        for status, says, words in (
                (3, "holds 3", ("--logits", kept, "--pick", "4")), (2, "32 x 32", ("--logits", kept, "--size", "224")),
                (3, "safetensors", ("--logits", self.photo)), (2, "--save-logits", ("--text", "a", "--save-logits", kept)),
                (2, "--logits", ("--logits", kept, "--mask", self.photo)),
                (2, "--pick", ("--logits", kept, "--text", "a", "--pick", "1"))):
            with self.subTest(words):
                self.fails(status, says, "segment", self.photo, *words)

    def test_empty_words(self):
        for words in ("", "  ", "\t\n", "\u3000"):
            self.fails(2, "text is empty", "segment", self.photo, "--text", words)
            self.fails(2, "text is empty", "segment", self.photo, "--text", words, "--like", "1,1,9,9")

    def test_picked_results_are_refined(self):
        words = self.json_of(self.photo, "--text", "dog", *ALL)["prompts"][0]["instances"]
        both = self.json_of(self.photo, "--text", "dog", *ALL, "--pick", "2", "--point", "20,15")
        refined = both["prompts"][0]["instances"]
        self.assertEqual([a["score"] for a in words], [b["score"] for b in refined])
        self.assertEqual(words[0], refined[0])
        self.assertNotEqual(words[1]["segmentation"], refined[1]["segmentation"])
        self.assertNotIn("instances", both["click"])

    def test_everything(self):
        few = ["--points", "2", "--overlap", "0", "--stability", "0"]
        r = self.works("everything", self.photo, *few, "--duplicate", "1", "--json")
        d = json.loads(r.stdout)
        self.assertEqual(len(d["prompts"][0]["instances"]), 12)
        self.assertEqual(d["everything"]["points"], 2)
        parts = json.loads(self.works("everything", self.photo, *few, "--crops", "1", "--duplicate", "1", "--json").stdout)
        self.assertGreaterEqual(len(parts["prompts"][0]["instances"]), 12)
        self.assertEqual(parts["everything"]["crops"], 1)
        out = self.path("all")
        self.works("everything", self.photo, *few, "--out", out)
        self.assertEqual(load(out, "result.json")["categories"], [{"id": 1, "name": "object"}])
        again = self.works("everything", self.photo, *few, "--out", out, "--resume").stderr
        self.assertIn(b"finished already", again)
        self.assertIn(b"nothing found", self.works("everything", self.photo, "--points", "1", "--overlap", "1").stdout)
        self.fails(2, "--points", "everything", self.photo, "--points", "0")

    def test_bad_clicks(self):
        p = self.photo
        for status, says, words in (
                (2, "X,Y", ("--point", "5")), (2, ",neg", ("--point", "1,2,x")), (2, "X,Y", ("--point", "nan,2")),
                (2, "40 x 30", ("--point", "41,2")), (2, "twice", ("--box", "1,2,3,4", "--box", "1,2,3,4")),
                (2, "40 x 30", ("--box", "60,2,70,4")), (2, "less than X1", ("--box", "9,2,3,4")),
                (2, "--pick", ("--pick", "1", "--point", "1,2")), (2, "--multimask", ("--text", "a", "--multimask")),
                (3, "nope.png", ("--mask", "nope.png")),
                (3, "results were found", ("--text", "a", "--score", "1", "--pick", "1", "--point", "1,2"))):
            with self.subTest(words):
                self.fails(status, says, "segment", p, *words)

    def test_nothing_found(self):
        r = self.works("segment", self.photo, "--text", "dog", "--score", "1", "--json", "--out", self.path("o"))
        self.assertEqual(json.loads(r.stdout)["prompts"][0]["instances"], [])
        coco = load(self.path("o", "result.json"))
        self.assertEqual((len(coco["images"]), coco["annotations"], coco["categories"][0]["name"]), (1, [], "dog"))
        self.assertIn(b"nothing found", self.works("segment", self.photo, "--text", "dog", "--score", "1").stdout)

    def test_table(self):
        rows = self.works("segment", self.photo, "--text", "dog", *ALL).stdout.decode().splitlines()
        self.assertEqual(rows[0].split(), ["prompt", "score", "box", "x0,y0,x1,y1", "area"])
        self.assertEqual(len(rows), 4)
        self.assertEqual(len({len(r) for r in rows}), 1, "columns are aligned")
        scores = [float(r.split()[1]) for r in rows[1:]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(self.works("segment", self.photo, "--text", "dog", "--quiet", *ALL).stdout, b"")

    def test_long_prompt_warns(self):
        long = " ".join(["wonderful"] * 60)
        r = self.works("segment", self.photo, "--text", long, "--json", *ALL)
        self.assertIn(b"samite: ", r.stderr)
        self.assertTrue(json.loads(r.stdout)["prompts"][0]["cut"])
        self.assertEqual(self.works("segment", self.photo, "--text", long, "--quiet", *ALL).stderr, b"")

    def test_odd_names(self):
        name = self.write(b"we\xffird\n\x1b[31m.ppm", ppm())
        r = self.works("segment", name, "--text", "\x1b[31mdog", "--json", *ALL)
        d = json.loads(r.stdout)
        self.assertEqual(bytes.fromhex(d["file_hex"]), name)
        self.assertIn("\\xFF", d["file"])
        table = self.works("segment", name, self.photo, "--text", "\x1b[31mdog", *ALL)
        self.assertNotIn(b"\x1b", table.stdout + table.stderr)

    def test_write_errors(self):
        if os.path.exists("/dev/full"):
            for extra in (["--json"], []):
                with open("/dev/full", "wb") as full:
                    r = subprocess.run([SAMITE, "segment", self.photo, "--text", "dog", *ALL, *extra], stdout=full,
                                       stderr=subprocess.PIPE, env=environment("formula:tiny"))
                self.assertEqual(r.returncode, 4)
                self.assertEqual(len(r.stderr.splitlines()), 1)

    def test_closed_streams(self):
        """A result file must not take the number of a closed stream."""
        for closed, status in ((">&-", 4), ("<&-", 0), (">&- <&-", 4), (">&- 2>&- <&-", 4), ("2>&-", 0)):
            with self.subTest(closed):
                r = subprocess.run(["sh", "-c", 'exec "$@" ' + closed, "sh", SAMITE, "segment", self.photo, "--text",
                                    "dog", "--out", self.path("o"), "--jsonl", *ALL], env=environment("formula:tiny"),
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
                self.assertEqual(r.returncode, status, r.stderr)
                for name in self.files("o"):
                    data = read(self.path("o", name))
                    self.assertEqual(data[:1], b"{" if name.endswith(".json") else b"\x89", name)
                    self.assertNotIn(b"samite:", data)
        r = subprocess.run(["sh", "-c", 'exec "$@" <&-', "sh", SAMITE, "segment", "-", "--text", "dog"],
                           env=environment("formula:tiny"), stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=600)
        self.assertEqual((r.returncode, b"standard input" in r.stderr), (3, True), r.stderr)

    def test_export_options_that_do_not_apply(self):
        """An option that means nothing for the format is refused, and nothing is written."""
        out = self.path("parts")
        for said, args in (("--dtype f16", ["paddle", "--dtype", "f16"]),
                           ("--precision", ["ascend", "--soc", "Ascend310P3", "--dtype", "f16"]),
                           ("work for ascend", ["onnx", "--soc", "Ascend310P3"]),
                           ("work for ascend", ["paddle", "--aipp"]), ("--weights", ["paddle", "--weights", "inside"]),
                           ("--check", ["onnx", "--by", "openvino"]), ("--check", ["onnx", "--ort", "lib.so"]),
                           ("names no part", ["onnx", "--parts", ""]),
                           ("none of", ["onnx", "--parts", "image,foo"])):
            with self.subTest(args):
                self.fails(2, said, "export", *args, "--out", out)
                self.assertFalse(os.path.exists(out))

    def test_file_size_limit(self):
        """ulimit -f: an error like a full disk, no signal, nothing left."""
        for args in (["convert", "formula:tiny", self.path("m.pt")],
                     ["convert", "formula:tiny", self.path("m.safetensors")],
                     ["export", "onnx", "--out", self.path("e")]):
            with self.subTest(args):
                r = subprocess.run([SAMITE, *args], env=environment("formula:tiny"), stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, timeout=600,
                                   preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000)))
                self.assertEqual(r.returncode, 4, r.stderr)
                self.assertIn(b"ulimit -f", r.stderr)
                self.assertEqual(len(r.stderr.splitlines()), 1, r.stderr)
                self.assertEqual([f for f in self.files() if "m." in f or ".onnx" in f], [])

    def test_endless_input(self):
        """A stream that is no picture is refused by its first bytes."""
        if os.path.exists("/dev/zero"):
            self.fails(3, "not a known picture format", "segment", "/dev/zero", "--text", "dog")
        p = subprocess.Popen([SAMITE, "segment", "-", "--text", "dog"], env=environment("formula:tiny"),
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            for _ in range(1000):
                p.stdin.write(b"x" * 65536)
            self.fail("64 MB of it were read")
        except BrokenPipeError:
            pass
        try:
            p.stdin.close()
        except BrokenPipeError:
            pass
        self.assertEqual(p.wait(600), 3)
        self.assertIn(b"standard input: not a known picture format", p.stderr.read())
        p.stdout.close()
        p.stderr.close()

    def test_long_names(self):
        """The reason stays when a name is too long for the line."""
        self.fails(3, ": no such file", "segment", self.path(*["n" * 200] * 6), "--text", "dog")
        self.fails(3, "", "segment", "n" * 6000, "--text", "dog")


class Folder(Case):
    """Results in a folder."""

    def segment(self, *args, out="o", status=0):
        r = run("segment", *args, "--text", "dog", "--text", "cat", "--out", self.path(out), *ALL)
        self.assertEqual(r.returncode, status, r.stderr.decode(errors="replace"))
        return r

    def whole(self, *names):
        """Every file is complete, and nothing temporary is left."""
        for name in self.files(*names):
            path = self.path(*names, name)
            if name.endswith(".json"):
                load(path)
            elif name.endswith(".png"):
                self.assertEqual(read(path)[-8:-4], b"IEND", name)
            else:
                self.fail("left over: " + name)

    def test_files(self):
        self.segment(self.photo)
        self.assertEqual(self.files("o"), sorted(["photo_labels.png", "photo_overlay.png", "result.json",
                                                  "records/photo.json"] + ["masks/photo_%d.png" % k
                                                                           for k in range(1, 7)]))
        coco = load(self.path("o", "result.json"))
        self.assertEqual([c["name"] for c in coco["categories"]], ["dog", "cat"])
        self.assertEqual([a["id"] for a in coco["annotations"]], [1, 2, 3, 4, 5, 6])
        w, h, labels = read_gray_png(self.path("o", "photo_labels.png"))
        self.assertEqual((w, h), (40, 30))
        expected = [0] * (w * h)
        for a in reversed(coco["annotations"]):
            mask = [v for row in decode_rle(a["segmentation"]["counts"], 30, 40) for v in row]
            self.assertEqual(sum(mask), a["area"])
            self.assertEqual(read_gray_png(self.path("o", "masks", "photo_%d.png" % a["object"])),
                             (40, 30, [255 * v for v in mask]))
            self.assertEqual(bool(a["polygons"]), bool(sum(mask)))
            expected = [a["object"] if m else e for m, e in zip(mask, expected)]
        self.assertEqual(labels, expected)

    def test_batch_with_bad_files(self):
        self.write("in/a.ppm", ppm())
        self.write("in/b.ppm", b"P6\n40 30\n255\nshort")
        self.write("in/c.ppm", ppm(seed=3))
        r = self.segment(self.path("in"), self.path("gone.jpg"), status=3)
        last = r.stderr.decode().splitlines()[-1]
        self.assertIn("2 of 4 pictures failed", last)
        self.assertIn("b.ppm", last)
        self.assertIn("gone.jpg", last)
        coco = load(self.path("o", "result.json"))
        self.assertEqual([os.path.basename(i["file_name"]) for i in coco["images"]], ["a.ppm", "c.ppm"])
        self.whole("o")
        r = run("segment", self.path("in"), "--text", "dog", "--json", *ALL)
        self.assertEqual((r.returncode, ["error" in d for d in json.loads(r.stdout)]), (3, [False, True, False]))

    def test_same_names(self):
        for name in ("in/a/x.ppm", "in/b/x.ppm", "in/x.ppm", "in/y.ppm"):
            self.write(name, ppm())
        self.write("in/y.png", png(9, 9))
        self.segment(self.path("in"), "--recursive")
        coco = load(self.path("o", "result.json"))
        names = [i["result_name"] for i in coco["images"]]
        self.assertEqual(len(set(names)), 5)
        for name in names:
            self.assertTrue(os.path.exists(self.path("o", name + "_overlay.png")))
        self.assertEqual(len([f for f in self.files("o") if f.startswith("masks/")]), 30)

    def times(self, out="o"):
        return {f: os.stat(self.path(out, f)).st_mtime_ns for f in self.files(out) if not f.startswith("result")}

    def test_resume(self):
        for k in range(3):
            self.write("in/%d.ppm" % k, ppm(seed=k + 1))
        self.segment(self.path("in"))
        first, merged = self.times(), read(self.path("o", "result.json"))
        os.unlink(self.path("o", "result.json"))
        r = self.segment(self.path("in"), "--resume")
        self.assertEqual(self.times(), first)
        self.assertIn(b"3 of 3 pictures were finished", r.stderr)
        self.assertEqual(read(self.path("o", "result.json")), merged)
        os.unlink(self.path("o", "masks", "1_2.png"))
        self.write("o/records/2.json", b"{")
        self.assertIn(b"1 of 3 pictures were finished", self.segment(self.path("in"), "--resume").stderr)
        self.assertEqual(read(self.path("o", "result.json")), merged)
        second = self.times()
        self.assertEqual({f for f in first if first[f] == second[f]}, {f for f in first if f.split("/")[-1][0] == "0"})
        self.write("in/0.ppm", ppm(seed=9))
        self.assertIn(b"2 of 3 pictures were finished", self.segment(self.path("in"), "--resume").stderr)
        other = run("segment", self.path("in"), "--resume", "--text", "dog", "--out", self.path("o"), *ALL)
        self.assertNotIn(b"finished", other.stderr)
        self.assertEqual(len([f for f in self.files("o") if f.startswith("masks/")]), 9, "masks of before are gone")

    def test_shards(self):
        for k in range(5):
            self.write("in/%d.ppm" % k, ppm(seed=k + 1))
        self.write("in/sub/1.ppm", ppm(seed=7))
        for k in (1, 2):
            self.segment(self.path("in"), "-r", "--shard", "%d/2" % k)
        seen = [[i["result_name"] for i in load(self.path("o", "result-%dof2.json" % k))["images"]]
                for k in (1, 2)]
        self.assertEqual((len(seen[0]), len(seen[1])), (3, 3))
        self.assertEqual(len(set(seen[0] + seen[1])), 6)
        r = self.segment(self.path("in"), "-r", "--resume")
        self.assertIn(b"6 of 6 pictures were finished", r.stderr)
        self.segment(self.path("in"), "-r", out="p")
        self.assertEqual(read(self.path("o", "result.json")),
                         read(self.path("p", "result.json")))
        self.segment(self.photo, "--shard", "3/3", out="q")
        self.assertEqual(load(self.path("q", "result-3of3.json"))["images"], [])

    def batch(self, count=300):
        first = self.write("in/0.ppm", ppm())
        for k in range(1, count):
            os.link(first, self.path("in", "%d.ppm" % k))
        return start("segment", self.path("in"), "--text", "dog", "--text", "cat", "--out", self.path("o"), *ALL,
                     "--jsonl")

    def check_records(self):
        """A record is there only when everything else of its picture is."""
        for record in os.listdir(self.path("o", "records")):
            if ".tmp-" in record:
                continue
            name = record[:-len(".json")]
            found = len(load(self.path("o", "records", record))["annotations"])
            for k in range(1, found + 1):
                read_gray_png(self.path("o", "masks", "%s_%d.png" % (name, k)))
            read_gray_png(self.path("o", name + "_labels.png"))

    def test_interrupt(self):
        for number, wait in ((signal.SIGINT, 3), (signal.SIGTERM, 1)):
            with self.subTest(number):
                shutil.rmtree(self.path("in"), ignore_errors=True)
                shutil.rmtree(self.path("o"), ignore_errors=True)
                p = self.batch()
                lines = [p.stdout.readline() for _ in range(wait)]
                p.send_signal(number)
                rest, message = p.communicate()
                self.assertEqual(p.returncode, 130, message)
                self.assertEqual(len(message.splitlines()), 1, message)
                for line in lines + rest.splitlines():
                    json.loads(line)
                self.whole("o")
                self.check_records()

    def test_kill(self):
        p = self.batch(40)
        for _ in range(5):
            p.stdout.readline()
        p.kill()
        p.communicate()
        self.check_records()
        finished = len([f for f in os.listdir(self.path("o", "records")) if f.endswith(".json")])
        self.assertGreaterEqual(finished, 5)
        self.segment(self.path("in"), "--resume")
        self.segment(self.path("in"), out="p")
        self.assertEqual(read(self.path("o", "result.json")),
                         read(self.path("p", "result.json")))


class Tools(Case):
    def test_info(self):
        d = json.loads(self.works("info", "formula:tiny", "--json").stdout)
        self.assertGreater(sum(p["parameters"] for p in d["parts"]), 0)
        self.assertGreater(sum(p["flops"] for p in d["parts"]), 0)
        self.assertIn(d["input_side"], d["input_sides"])
        self.assertEqual(d["tensors"]["missing"], 0)
        text = self.works("info", "-m", "formula:tiny").stdout
        self.assertIn(b"image encoder", text)
        bigger = [s for s in d["input_sides"] if s > d["input_side"]][0]
        more = json.loads(self.works("info", "formula:tiny", "--json", "--size", str(bigger)).stdout)
        self.assertGreater(more["activation_bytes"], d["activation_bytes"])
        self.fails(3, "photo.ppm", "info", self.photo)

    def test_encode(self):
        file, where = self.path("f.safetensors"), self.path("many")
        self.works("encode", self.photo, "-o", file, "--dtype", "f32")
        a, b = (self.json_of(x, "--text", "dog", *ALL) for x in (self.photo, file))
        self.assertEqual(a["prompts"], b["prompts"])
        self.assertEqual((a["width"], a["height"]), (b["width"], b["height"]))
        self.works("segment", file, "--text", "dog", *ALL, "--out", self.path("with"))
        self.assertTrue(os.path.exists(self.path("with", "f_overlay.png")))
        self.works("encode", self.photo, "-o", where, "--no-picture")
        small = os.path.join(where, os.listdir(where)[0])
        self.assertLess(os.path.getsize(small), 0.6 * os.path.getsize(file))
        said = self.works("segment", small, "--text", "dog", *ALL, "--out", self.path("without")).stderr
        self.assertIn(b"no overlay", said)
        self.fails(2, "--out", "encode", self.photo)
        self.fails(2, "--tile", "segment", file, "--text", "dog", "--tile", "64")
        self.fails(3, "another model", "segment", file, "--text", "dog", "-m", "formula:tiny,seed=3")
        self.fails(3, "cut short", "segment", self.write("cut.safetensors", read(file)[:-9]), "--text", "dog")
        self.fails(3, "no encoded picture", "segment", self.written_model(), "--text", "dog")

    def written_model(self):
        self.works("convert", "formula:tiny", self.path("model.safetensors"))
        return self.path("model.safetensors")

    def test_convert(self):
        for name in ("m.safetensors", "m.pt"):
            out = self.path(name)
            self.works("convert", "formula:tiny", out)
            a, b = (self.json_of(self.photo, "--text", "dog", "-m", m) for m in ("formula:tiny", out))
            self.assertEqual(a["prompts"], b["prompts"], name)
        half = self.path("half.safetensors")
        self.works("convert", self.path("m.pt"), half, "--dtype", "bf16")
        self.assertLess(os.path.getsize(half), 0.6 * os.path.getsize(out))
        self.fails(2, "--calibrate DIR", "convert", out, half, "--dtype", "int8")
        self.fails(2, "go with --dtype int8", "convert", out, half, "--calibrate", self.photo)
        data = read(out)
        self.fails(3, "cut.pt", "info", self.write("cut.pt", data[:len(data) // 2]))
        self.fails(3, "nowhere", "convert", "formula:tiny", self.path("nowhere", "x.pt"))
        data = read(self.path("m.safetensors"))
        at = data.index(b"samite.config")
        brace = data.index(b"{", at)
        self.fails(3, "samite.config", "info", self.write("notes.safetensors", data[:brace] + b"x" + data[brace + 1:]))
        self.assertEqual([f for f in self.files() if "tmp" in f], [])

    def test_convert_int8(self):
        features = json.loads(self.works("doctor", "--json").stdout)["features"]
        if "AVX2" not in features:
            return
        photos, whole, eight = self.path("some"), self.path("whole.safetensors"), self.path("eight.safetensors")
        os.mkdir(photos)
        shutil.copy(self.photo, photos)
        self.works("convert", "formula:tiny", whole)
        d = json.loads(self.works("convert", whole, eight, "--dtype", "int8", "--calibrate", photos, "--count", "1",
                                  "--text", "dog", "--json").stdout)
        self.assertEqual(d["pictures"], 1)
        self.assertEqual(d["int8"], sum(t["type"] == "int8" for t in d["tensors"]))
        self.assertTrue(all(0 < t["error"] < 0.05 and not t["why"] for t in d["tensors"] if t["type"] == "int8"))
        self.assertLess(os.path.getsize(eight), os.path.getsize(whole))
        said = self.works("convert", whole, self.path("none.safetensors"), "--dtype", "int8", "--calibrate", photos,
                          "--bound", "1e-6").stdout
        self.assertIn(b"above 1e-06", said)
        self.assertIn(b"0 of %d tensors in 8 bits" % len(d["tensors"]), said)
        self.fails(2, "8 bits already", "convert", eight, self.path("x.safetensors"), "--dtype", "int8", "--calibrate",
                   photos)
        self.fails(2, "AVX2 is needed", "convert", whole, self.path("x.safetensors"), "--dtype", "int8", "--calibrate",
                   photos, "--cpu", "ref")
        # which arithmetic the processor gets, with fewer features step by step
        fast = "bf16" if "AVX512_BF16" in features else "f32"
        for model, level, want in ((whole, "ref", "f32"), (whole, "avx2", "f32"), (whole, "avx512", fast),
                                   (eight, "ref", "f32"), (eight, "avx2", "int8")):
            for chosen in (["--precision", "auto"],) + (([],) if model == eight else ()):
                d = json.loads(self.works("bench", "-m", model, "--cpu", level, "--json", "--repeats", "1", *chosen).stdout)
                self.assertEqual(d["precision"], want, (model, level))

    def test_align(self):
        tiny = os.path.join(GOLDEN, "tiny")
        r = self.works("align", "-m", "formula:tiny", "--reference", tiny)
        self.assertIn(b"passed", r.stdout.splitlines()[-1])
        d = json.loads(self.works("align", "-m", "formula:tiny", "--reference", tiny, "--json").stdout)
        self.assertEqual(d["summary"]["compared"], len(d["tensors"]))
        self.assertTrue(d["summary"]["passed"])
        strict = run("align", "-m", "formula:tiny", "--reference", tiny, "--tolerance", "1e-12")
        self.assertEqual(strict.returncode, 1)
        self.assertIn(b"FAILED", strict.stdout.splitlines()[-1])
        self.assertEqual(run("align", "-m", "formula:tiny,seed=5", "--reference", tiny).returncode, 1)
        self.fails(3, "nowhere", "align", "--reference", self.path("nowhere"))
        scene = os.path.join(tiny, "scene.png")
        self.works("align", "--against", "formula:tiny", "--image", scene, "--text", "cat")
        other = run("align", "--against", "formula:tiny,seed=5", "--image", scene, "--text", "cat", "--quiet")
        self.assertEqual((other.returncode, len(other.stdout.splitlines())), (1, 1))

    def test_bench(self):
        d = json.loads(self.works("bench", "--json", "--repeats", "1").stdout)
        for stage in ("image_encode", "text", "ground"):
            self.assertGreater(d[stage]["seconds"], 0)
            self.assertGreater(d[stage]["gflops"], 0)
            self.assertGreater(d[stage]["roofline"], 0)
        self.assertGreater(d["peak_rss_bytes"], 0)
        self.assertIn("seconds", d["load"])
        self.assertIn(b"image encode", self.works("bench", "--repeats", "1").stdout)

    def test_bench_prompts(self):
        d = json.loads(self.works("bench", "--prompts", "--json", "--repeats", "2").stdout)
        self.assertEqual(sorted(d), ["first", "found", "identical", "nothing", "precision", "second"])
        self.assertTrue(all(0 < d[k] < 100 for k in d if k != "precision"), d)
        self.assertIn(b"nothing found", self.works("bench", "--prompts", "--repeats", "1").stdout)

    def test_bench_profile(self):
        page, old = self.path("ops.html"), self.path("before.json")
        said = self.works("bench", "--repeats", "1", "--precision", "int8", "--profile", "--timeline", page).stdout
        self.assertIn(b"trunk.block.*", said)
        with open(page) as f:
            self.assertIn('"trunk.block.0","attention"', f.read())
        with open(old, "wb") as f:
            f.write(self.works("bench", "--json", "--repeats", "2").stdout)
        self.assertIn(b"speed-up", self.works("bench", "--repeats", "2", "--compare", old).stdout)
        r = run("bench", "-m", "formula:tiny", "--repeats", "1", "--compare", page)
        self.assertEqual(r.returncode, 3)
        self.assertIn(b"ops.html", r.stderr)

    def test_doctor(self):
        d = json.loads(self.works("doctor", "--json").stdout)
        self.assertTrue(d["model"]["usable"])
        self.assertGreater(d["threads"], 0)
        self.works("doctor", model=None)
        r = run("doctor", "-m", self.path("none.pt"))
        self.assertEqual(r.returncode, 1)
        self.assertIn(b"none.pt", r.stdout)


if __name__ == "__main__":
    SAMITE = os.path.abspath(sys.argv.pop(1))
    unittest.main(verbosity=1)
