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


def run(status, *words, lines=1, **environment):
    global checks
    checks += 1
    p = subprocess.run([SAMITE, "eval", *words], capture_output=True, text=True, env=dict(os.environ, **environment))
    assert p.returncode == status, (words, p.returncode, p.stdout, p.stderr)
    assert status == 0 or len(p.stderr.strip().splitlines()) == lines, p.stderr
    return p.stdout, p.stderr


def tracks():
    """Results as samite track writes them: other ids, other frames, JSON lines."""
    def runs(*counts):
        return {"size": [4, 6], "counts": list(counts)}
    seen = [runs(2, 3 + i, 19 - i) for i in range(6)]
    truth = {"videos": [{"id": 9, "name": "a/clip.mp4", "width": 6, "height": 4, "length": 3,
                         "frame_indices": [0, 2, 5]}], "categories": [{"id": 4, "name": "dog"}],
             "annotations": [{"video_id": 9, "category_id": 4, "segmentations": [seen[0], None, seen[5]]}]}
    own = {"videos": [{"id": 1, "name": "clip", "width": 6, "height": 4, "length": 6, "frame_indices": list(range(6))}],
           "categories": [{"id": 1, "name": "brown dog"}],
           "annotations": [{"video_id": 1, "category_id": 1, "segmentations": [seen[0], seen[1], None, None, None, seen[5]]}]}
    line = '{"frame":%d,"objects":[%s]}\n'
    one = '{"id":3,"score":0.5,"segmentation":%s}'
    lines = "".join(line % (i, one % json.dumps(seen[i]) if i in (0, 1, 5) else "") for i in range(6))
    with tempfile.TemporaryDirectory() as folder:
        gt, dt = os.path.join(folder, "gt.json"), os.path.join(folder, "dt.json")

        def score(text, status=0):
            with open(dt, "w") as f:
                f.write(text)
            out, err = run(status, "--video", "--gt", gt, "--dt", dt, "--json")
            return err if status else json.loads(out)
        with open(gt, "w") as f:
            json.dump(truth, f)
        for text in (json.dumps(own), lines, lines.replace("\n", "\r\n") + "\n"):
            got = score(text)
            assert got["video"]["HOTA"] == got["video"]["J&F"] == 1.0 and "1 masks are on frames" in got["notes"][0], got
        assert "line 7: object 3 has a mask on frame 0 already" in score(lines + lines, 3)
        assert "line 6, column" in score(lines[:-20], 3)
        assert "ascending" in score(json.dumps(own).replace("[0, 1, 2, 3, 4, 5]", "[0, 1, 2, 3, 5, 5]"), 3)
        assert "6 x 5" in score(line % (0, one % json.dumps({"size": [5, 6], "counts": [30]})), 3)
        truth["videos"].append({"id": 10, "name": "b.mp4", "width": 6, "height": 4, "length": 1})
        truth["categories"].append({"id": 1, "name": "cat"})
        with open(gt, "w") as f:
            json.dump(truth, f)
        assert "2 videos and 2 categories" in score(lines, 3)
        assert "1 tracks have a category" in score(json.dumps(own))["notes"][0]
        own["categories"][0]["name"] = "dog"
        assert score(json.dumps(own))["video"]["HOTA"] == 1.0


def oddities():
    """What is accepted, but with a remark."""
    truth = {"images": [{"id": 1, "width": 9, "height": 9}], "categories": [{"id": 1, "name": "a"}]}
    with tempfile.TemporaryDirectory() as folder:
        gt, dt = os.path.join(folder, "gt.json"), os.path.join(folder, "dt.json")
        with open(gt, "w") as f:
            json.dump(truth, f)
        with open(dt, "w") as f:
            json.dump([{"image_id": 1, "category_id": 1, "bbox": [4, 4, -3, 3], "score": 0.5}], f)
        said = "".join(run(0, "--gt", gt, "--dt", dt, "--iou", "bbox"))
        assert "has no annotations" in said and "negative width" in said, said


def main():
    oddities()
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
    tracks()
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
        assert "gone.jpg" in run(3, *words, lines=2)[1]
        assert "is no folder" in run(3, *words[:4], "--images", truth, *words[6:])[1]
        assert run(0, *words, "-q", OMPI_COMM_WORLD_RANK="1", OMPI_COMM_WORLD_SIZE="2")[0] == ""
    print("%d checks" % checks)


main()
