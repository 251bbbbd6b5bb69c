"""demo.py - the model that comes with samite: found without -m, finds what is there at every precision, exports, aligns.

demo.py SAMITE SCENES    SCENES: folder of models/scenes. Without the model beside SAMITE: exit status 77.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

SAMITE, SCENES = os.path.abspath(sys.argv[1]), sys.argv[2]
MODEL = os.path.join(os.path.dirname(SAMITE), "share", "samite", "demo.safetensors")
PICTURES = os.path.join(SCENES, "pictures")
NOTICE = "knows 118 names of drawings"

# What holds for the scenes, and how much a number may differ at another precision.
LEAST = {"presence": 0.88, "bbox": 0.75, "segm": 0.65}
LOSS = {"presence": 0.03, "bbox": 0.04, "segm": 0.05}


def run(*args, status=0, program=SAMITE, **more):
    env = {k: v for k, v in os.environ.items() if k != "SAMITE_MODEL"}
    env.update(OMP_WAIT_POLICY="passive", SAMITE_NO_CACHE="1", **more)
    r = subprocess.run([program, *args], env=env, capture_output=True, text=True, timeout=600)
    assert r.returncode == status, (args, r.returncode, r.stdout[-2000:], r.stderr[-2000:])
    return r


class Demo(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp()
        cls.usual = cls.score("f32")

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder, name)

    @classmethod
    def score(cls, name, *options):
        """Presence accuracy and AP50 by name without doubles."""
        r = run("eval", "--gt", os.path.join(SCENES, "instances.json"), "--images", PICTURES, "--iou", "bbox,segm", "--nms",
                "0.5", "--out", cls.path(name), "-j", "1", "-q", "--json", *options)
        o = json.loads(r.stdout)
        print(name, "presence %.3f, boxes %.3f, masks %.3f" % (
            o["presence"]["accuracy"], o["bbox_nms"]["stats"][1], o["segm_nms"]["stats"][1]), flush=True)
        return {"presence": o["presence"]["accuracy"], "bbox": o["bbox_nms"]["stats"][1], "segm": o["segm_nms"]["stats"][1]}

    def near(self, scores):
        for key, most in LOSS.items():
            self.assertLess(abs(scores[key] - self.usual[key]), most, (key, scores, self.usual))

    def test_finds_what_is_there(self):
        for key, least in LEAST.items():
            self.assertGreater(self.usual[key], least, self.usual)

    def test_same_numbers_again(self):
        self.assertEqual(self.score("again"), self.usual)

    def test_bf16(self):
        self.near(self.score("bf16", "--precision", "bf16"))

    def test_bf16_file(self):
        run("convert", MODEL, self.path("bf16.safetensors"), "--dtype", "bf16", "-q")
        self.near(self.score("bf16 file", "-m", self.path("bf16.safetensors")))

    def test_int8(self):
        run("convert", MODEL, self.path("int8.safetensors"), "--dtype", "int8", "--calibrate", PICTURES, "-t", "circle",
            "-j", "1", "-q")
        self.near(self.score("int8", "-m", self.path("int8.safetensors")))

    def test_names_it_was_not_told(self):
        picture = os.path.join(PICTURES, "013.jpg")
        r = run("segment", picture, "-t", "panda", "-t", "blue triangle", "-j", "1", "--json")
        panda, triangle = json.loads(r.stdout)["prompts"]
        self.assertEqual((len(panda["instances"]), len(triangle["instances"])), (1, 0))
        self.assertEqual(r.stderr.count(NOTICE), 1)
        self.assertEqual(run("segment", picture, "-t", "panda", "-j", "1", "-q").stderr, "")
        r = run("segment", picture, "-t", "small panda", "-j", "1")
        self.assertIn("leaves out: 'small'", r.stderr)
        r = run("segment", picture, "-t", "zeppelin", "-j", "1", status=2)
        self.assertIn("nothing of: 'zeppelin'", r.stderr)
        r = run("segment", picture, "-t", "panda", "--point", "9,9", "-j", "1", status=3)
        self.assertEqual(r.stderr.count("Traceback") + r.stdout.count("panda"), 0)

    def test_far_from_its_file(self):
        """Alone in a folder the program says what to do; as installed it finds the file again."""
        for folder in ("bin", "share/samite"):
            os.makedirs(self.path(folder))
        program, picture = self.path("bin/samite"), os.path.join(PICTURES, "013.jpg")
        shutil.copy(SAMITE, program)
        if "no model given: use -m" not in subprocess.run([program, "segment", picture, "-t", "panda"], env={
                k: v for k, v in os.environ.items() if k != "SAMITE_MODEL"}, capture_output=True, text=True).stderr:
            self.skipTest("another samite is installed")
        shutil.copy(MODEL, self.path("share/samite/demo.safetensors"))
        r = run("segment", picture, "-t", "panda", "-j", "1", "--json", program=program)
        self.assertEqual(len(json.loads(r.stdout)["prompts"][0]["instances"]), 1)

    def test_align(self):
        run("align", "-m", MODEL, "--against", MODEL, "--against-precision", "bf16", "--image",
            os.path.join(PICTURES, "003.jpg"), "-t", "owl", "--tolerance", "0.1", "--cosine", "0.999", "-j", "1")

    def test_export(self):
        """The files are written; where ONNX Runtime is, it computes the same."""
        out = self.path("onnx")
        run("export", "onnx", "--out", out, "--prompt-len", "8", "-q")
        self.assertIn("grounding_head.onnx", os.listdir(out))
        if os.environ.get("SAMITE_ONNXRUNTIME"):
            run("export", "onnx", "--out", out, "--prompt-len", "8", "--check", "-j", "1", "-q")
            picture = os.path.join(PICTURES, "013.jpg")
            r = run("segment", picture, "-t", "panda", "--engine", "onnxruntime", "--parts", out, "-j", "1", "--json")
            self.assertEqual(len(json.loads(r.stdout)["prompts"][0]["instances"]), 1)


if __name__ == "__main__":
    if not os.path.exists(MODEL):
        print("no " + MODEL)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1])
