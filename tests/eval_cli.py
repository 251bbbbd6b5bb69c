"""samite eval on the command line: what it prints, what it refuses, exit status.  eval_cli.py SAMITE"""

import json
import os
import subprocess
import sys
import tempfile

SAMITE, HERE = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
GOLDEN = os.path.join(HERE, "golden", "eval")
GT, DT = os.path.join(GOLDEN, "gt.json"), os.path.join(GOLDEN, "dt.json")
checks = 0


def run(status, *words, **environment):
    global checks
    checks += 1
    p = subprocess.run([SAMITE, "eval", *words], capture_output=True, text=True, env=dict(os.environ, **environment))
    assert p.returncode == status, (words, p.returncode, p.stdout, p.stderr)
    assert status == 0 or len(p.stderr.strip().splitlines()) == 1, p.stderr
    return p.stdout, p.stderr


def main():
    want = json.load(open(os.path.join(GOLDEN, "expected.json")))
    out, _ = run(0, "--gt", GT, "--dt", DT, "--iou", "bbox,segm", "--json")
    got = json.loads(out)
    for kind in ("bbox", "segm"):
        for name in ("stats", "per_category_AP"):
            assert got[kind][name] == want[kind][name]
    assert got["about"]["gt"] == [GT] and got["about"]["iou"] == ["bbox", "segm"]
    one, two = (run(0, "--gt", GT, "--dt", DT, "--json", "-j", n)[0] for n in "12")
    assert one == two
    out, _ = run(0, "--gt", GT, "--dt", DT, "--classes", "cat,bird", "--limit", "9")
    assert "bbox" in out and "1 cat" in out and "3 dog" not in out
    pairs = os.path.join(GOLDEN, "phrases_gt.json"), os.path.join(GOLDEN, "phrases_dt.json")
    out, _ = run(0, "--cgf1", pairs[0], "--dt", pairs[1], "--json", "--iou", "segm")
    assert json.loads(out)["cgf1_segm"] == want["cgf1_segm"]
    clips = os.path.join(GOLDEN, "video_gt.json"), os.path.join(GOLDEN, "video_dt.json")
    out, _ = run(0, "--video", "--gt", clips[0], "--dt", clips[1])
    assert "AssA" in out and "J&F" in out
    both = ["--gt", GT, "--dt", DT]
    for words, needle in (
            ([], "--gt instances.json"), (["--gt", GT], "--dt FILE"), (["--gt", GT, *both], "one file"),
            ([*both, "--iou", "box"], "bbox,segm"), ([*both, "--shard", "1/2"], "--shard"),
            ([*both, "--class", "zebra"], "zebra"), ([*both, "-m", "formula:tiny"], "--dt"),
            (["--video", "--gt", GT], "--dt FILE"), ([*both, "--cgf1", GT], "leave --gt out")):
        assert needle in run(2, *words)[1], words
    assert "no such file" in run(3, "--gt", GT, "--dt", "/nowhere/dt.json")[1]
    assert "does not belong" in run(3, "--gt", GT, "--dt", pairs[1])[1]
    with tempfile.TemporaryDirectory() as folder:
        broken = os.path.join(folder, "broken.json")
        with open(broken, "w") as f:
            f.write("[{\"image_id\": 7,\n \"score\": nan}]")
        assert "line 2, column" in run(3, "--gt", GT, "--dt", broken)[1]
        report = os.path.join(folder, "report")
        run(0, "--gt", GT, "--dt", DT, "--report", report)
        assert sorted(os.listdir(report)) == ["metrics.csv", "metrics.json", "report.html"]
        truth = os.path.join(folder, "truth.json")
        with open(truth, "w") as f:
            json.dump({"images": [{"id": 1, "file_name": "gone.jpg", "width": 9, "height": 9}], "annotations": [],
                       "categories": [{"id": 1, "name": "cat"}]}, f)
        words = ["-m", "formula:tiny", "--gt", truth, "--images", folder, "--out", os.path.join(folder, "out")]
        assert "gone.jpg" in run(3, *words)[1]
        assert run(0, *words, "-q", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")[0] == ""
    print("%d checks" % checks)


main()
