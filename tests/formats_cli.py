#!/usr/bin/env python3
"""formats_cli.py - result formats, conversions and windows through the program. Usage: formats_cli.py PATH-OF-SAMITE

Standard library only, with formula:tiny, whose answers mean nothing but are the same everywhere.
"""

import json
import os
import shutil
import struct
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

import cli
from cli import load, ppm, read, run

ALL = ["-m", "formula:tiny", "-q", "--text", "dog", "--text", 'a "b" <c>', "--score", "0", "--max-det", "3"]


def geotiff(width, height):
    """Gray, one strip, with ModelPixelScale, ModelTiepoint and an EPSG code."""
    keys = struct.pack("<8H", 1, 1, 0, 1, 3072, 0, 1, 32633)
    scale, tie = struct.pack("<3d", 0.5, 0.25, 0), struct.pack("<6d", 0, 0, 0, 1000, 2000, 0)
    entries = [(256, 4, 1, width), (257, 4, 1, height), (258, 3, 1, 8), (259, 3, 1, 1), (262, 3, 1, 1), (273, 4, 1, None),
               (277, 3, 1, 1), (278, 4, 1, height), (279, 4, 1, width * height), (33550, 12, 3, scale),
               (33922, 12, 6, tie), (34735, 3, 8, keys)]
    at = 8 + 2 + 12 * len(entries) + 4
    directory, extra = b"", b""
    for tag, kind, count, value in entries:
        if isinstance(value, bytes):
            value, extra = at + len(extra), extra + value
        elif value is None:
            value = at + len(scale + tie + keys)
        directory += struct.pack("<HHII", tag, kind, count, value)
    pixels = bytes((x * 5 + y * 7) % 256 for y in range(height) for x in range(width))
    return struct.pack("<2sHIH", b"II", 42, 8, len(entries)) + directory + b"\0\0\0\0" + extra + pixels


class Formats(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="samite-formats-")
        self.addCleanup(shutil.rmtree, self.folder)
        self.write("a.ppm", ppm(90, 60))

    def path(self, *names):
        return os.path.join(self.folder, *names)

    def write(self, name, data):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "wb") as f:
            f.write(data)

    def works(self, *args):
        r = run(*args)
        self.assertEqual(r.returncode, 0, r.stderr)
        return r.stdout.decode()

    def fails(self, status, says, *args):
        r = run(*args)
        self.assertEqual(r.returncode, status, r.stderr)
        self.assertIn(says, r.stderr.decode())

    def segment(self, *args):
        return self.works("segment", self.path("a.ppm"), *ALL, "--out", self.path("o"), *args)

    def convert(self, source, target, a, b, *args):
        return json.loads(self.works("convert-annotations", self.path(source), self.path(target), "--from", a, "--to", b,
                                     "--json", *args))

    def test_files_of_formats(self):
        self.segment("--format", "yolo,labelme,geojson,cvat,voc")
        found = sorted(os.path.relpath(os.path.join(d, f), self.path("o")) for d, _, fs in os.walk(self.path("o")) for f in fs)
        self.assertEqual(found, ["a.geojson", "data.yaml", "labelme/a.json", "labels/a.txt", "records/a.json",
                                 "result.cvat.xml", "result.json", "voc/a.xml"])
        self.assertEqual(load(self.path("o", "labelme", "a.json"))["imagePath"], "a.ppm")
        self.assertIn('1: "a \\"b\\" <c>"', read(self.path("o", "data.yaml")).decode())
        tree = xml.fromstring(read(self.path("o", "result.cvat.xml")))
        self.assertEqual(len(tree.findall("image/mask")), 6)
        self.assertEqual({m.get("label") for m in tree.iter("mask")}, {"dog", 'a "b" <c>'})
        self.assertEqual(len(xml.fromstring(read(self.path("o", "voc", "a.xml"))).findall("object")), 6)
        times = os.stat(self.path("o", "a.geojson")).st_mtime_ns
        self.segment("--format", "geojson", "--resume")
        self.assertEqual(os.stat(self.path("o", "a.geojson")).st_mtime_ns, times)
        os.unlink(self.path("o", "a.geojson"))
        self.segment("--format", "geojson", "--resume")
        self.assertTrue(os.path.exists(self.path("o", "a.geojson")))

    def test_round_trips_are_exact(self):
        self.segment()
        original = load(self.path("o", "result.json"))["annotations"]
        for kind in ("yolo", "labelme", "png"):
            there = self.convert("o/result.json", kind, "coco", kind)
            self.assertEqual(there["objects"], 6)
            if kind == "yolo":
                self.write("yolo/images/a.ppm", ppm(90, 60))
            self.assertEqual(self.convert(kind, kind + ".json", kind, "coco")["left_out"], [])
            # to run lengths by way of masks, which are what they were
            self.convert(kind + ".json", kind + "_masks", "coco", "png")
            self.convert(kind + "_masks", kind + "_runs.json", "png", "coco")
            back = load(self.path(kind + "_runs.json"))
            self.assertEqual([a["segmentation"] for a in back["annotations"]], [a["segmentation"] for a in original])
            self.assertEqual([c["name"] for c in back["categories"]], ["dog", 'a "b" <c>'])

    def test_summary(self):
        self.write("c.json", json.dumps({
            "images": [{"id": "x", "file_name": "p/a.jpg", "width": 20, "height": 10},
                       {"id": 4, "file_name": "q/a.jpg", "width": 20, "height": 10}],
            "categories": [{"id": 9, "name": "n"}],
            "annotations": [
                {"id": 1, "image_id": "x", "category_id": 9, "segmentation": [[1.5, 1, 8, 1, 8, 8.25]], "bbox": [1, 1, 7, 7]},
                {"id": 2, "image_id": 4, "category_id": 9, "iscrowd": 1, "bbox": [0, 0, 20, 10],
                 "segmentation": {"size": [10, 20], "counts": [0, 200]}},
                {"id": 3, "image_id": 5, "category_id": 9, "bbox": [1, 1, 2, 2]}]}).encode())
        summary = self.convert("c.json", "y", "coco", "yolo")
        self.assertEqual((summary["images"], summary["objects"]), (2, 1))
        self.assertEqual(len(summary["left_out"]), 3)
        self.assertEqual(sorted(os.listdir(self.path("y", "labels"))), ["a.txt", "a_2.txt"])
        self.assertEqual(read(self.path("y", "labels", "a.txt")), b"0 0.075 0.1 0.4 0.1 0.4 0.825\n")
        self.convert("c.json", "l", "coco", "labelme")        # the polygon is not touched
        self.assertEqual(load(self.path("l", "a.json"))["shapes"][0]["points"], [[1.5, 1], [8, 1], [8, 8.25]])
        text = self.works("convert-annotations", self.path("c.json"), self.path("v"), "--from", "coco", "--to", "voc")
        self.assertIn("2 images, 1 categories, 2 objects", text)
        self.assertIn("2 x masks and polygons, of which VOC keeps the box", text)

    def test_bad_conversions(self):
        self.write("bad.json", b'{"images": [,')
        self.write("l/a.json", b"{")
        to = ["--to", "coco"]
        self.fails(3, "line 1 column", "convert-annotations", self.path("bad.json"), self.path("x"), "--from", "coco", *to)
        self.fails(3, "no labelme annotations found", "convert-annotations", self.path("l"), self.path("x"), "--from",
                   "labelme", *to)
        self.fails(3, "cannot read the folder", "convert-annotations", self.path("no"), self.path("x"), "--from", "png", *to)
        self.fails(3, "--classes", "convert-annotations", self.path("l"), self.path("x"), "--from", "yolo", *to)
        self.write("l/classes.txt", b"n\n")
        self.fails(3, "--images", "convert-annotations", self.path("l"), self.path("x"), "--from", "yolo", *to)
        self.fails(2, "--to FORMAT is missing", "convert-annotations", "a", "b", "--from", "coco")
        self.fails(2, "takes one of", "convert-annotations", "a", "b", "--from", "gif", *to)
        self.assertFalse(os.path.exists(self.path("x")))

    def test_map_coordinates(self):
        self.write("g.tif", geotiff(90, 60))
        args = ["segment", *ALL, "--format", "geojson", "--out", self.path("o")]
        self.works(*args, self.path("g.tif"), self.path("a.ppm"))
        plain, mapped = load(self.path("o", "a.geojson")), load(self.path("o", "g.geojson"))
        self.assertEqual((plain["coordinates"], mapped["coordinates"]), ("pixels", "GeoTIFF"))
        self.assertIn("note", plain)
        self.assertEqual(mapped["crs"]["properties"]["name"], "urn:ogc:def:crs:EPSG::32633")
        points = []

        def collect(c):
            points.append(c) if isinstance(c[0], (int, float)) else [collect(x) for x in c]
        [collect(f["geometry"]["coordinates"]) for f in mapped["features"]]
        self.assertTrue(points and all(1000 <= x <= 1045 and 1985 <= y <= 2000 for x, y in points))
        self.write("a.pmw", b"2\n0\n0\n-2\n1\n-1\n")
        self.works(*args, self.path("a.ppm"))
        world = load(self.path("o", "a.geojson"))
        self.assertEqual(world["coordinates"], "world file")
        for p, w in zip(plain["features"], world["features"]):
            if p["geometry"]["type"] == "Polygon":
                # y turns round, and with it the direction of the ring
                turn = lambda c: {(2 * x, -2 * y) for x, y in c}
                self.assertEqual(turn(p["geometry"]["coordinates"][0]),
                                 {tuple(c) for c in w["geometry"]["coordinates"][0]})
        self.write("a.pmw", b"2\n0\n")
        self.fails(3, "a.pmw", *args, self.path("a.ppm"))

    def test_windows(self):
        self.write("b.ppm", ppm(260, 150))
        out = ["segment", self.path("b.ppm"), *ALL[:5], "--score", "0.1"]
        r = json.loads(self.works(*out, "--tile", "64", "--overlap", "16", "--json"))
        instances = r["prompts"][0]["instances"]
        self.assertTrue(instances)
        for i in instances:
            self.assertEqual(i["segmentation"]["size"], [150, 260])
            mask = cli.decode_rle(i["segmentation"]["counts"], 150, 260)
            self.assertEqual(sum(map(sum, mask)), i["area"])
        again = json.loads(self.works(*out, "--tile", "64", "--overlap", "16", "--json", "-j", "2"))
        self.assertEqual(again["prompts"], r["prompts"])
        # one window that holds everything is the picture as a whole
        whole, one = (json.loads(self.works(*out, "--json", *t)) for t in ([], ["--tile", "300"]))
        self.assertEqual(one["prompts"], whole["prompts"])

    def test_bad_windows(self):
        out = ["segment", self.path("a.ppm"), "--text", "dog", "-m", "formula:tiny"]
        self.fails(2, "goes with --tile", *out, "--overlap", "4")
        self.fails(2, "at most half", *out, "--tile", "64", "--overlap", "40")
        self.fails(2, "--text only", *out, "--tile", "64", "--like", "1,1,9,9")
        self.fails(2, "needs --out", *out, "--format", "yolo")
        self.fails(2, "takes a list of", *out, "--out", self.path("o"), "--format", "yolo,zip")

    def test_hint(self):
        self.write("wide.ppm", ppm(1200, 20))
        out = ["segment", self.path("wide.ppm"), "--text", "dog", "-m", "formula:tiny"]
        self.assertIn(b"--tile", run(*out).stderr)
        self.assertNotIn(b"--tile", run(*out, "-q").stderr)
        self.assertNotIn(b"--tile", run(*out, "--tile", "1200").stderr)


if __name__ == "__main__":
    cli.SAMITE = sys.argv.pop(1)
    unittest.main()
