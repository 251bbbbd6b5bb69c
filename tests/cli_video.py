"""samite track on the command line: lines, files, refusals, exit status.  cli_video.py SAMITE"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile

SAMITE, HERE = sys.argv[1], os.path.dirname(os.path.abspath(__file__))
FRAMES = os.path.join(HERE, "golden", "video_tiny", "frames")
MODEL = ("-m", "formula:tiny", "-j", "1", "-q")
BOX = ("--box", "1:20,15,60,50")


def run(status, *words, **more):
    p = subprocess.run([SAMITE, "track", *words, *MODEL], capture_output=True, **more)
    err = p.stderr.decode()
    assert p.returncode == status, (words, p.returncode, p.stdout[:500], err)
    assert status == 0 or len(err.strip().splitlines()) == 1, err
    return [json.loads(line) for line in p.stdout.decode().splitlines()], err


def numbers(lines):
    return [line["frame"] for line in lines]


def main():
    with tempfile.TemporaryDirectory() as work:
        movie, out = os.path.join(work, "o.avi"), os.path.join(work, "out")
        lines, _ = run(0, FRAMES, *BOX, "--out", out, "--labels", "--overlay", movie, "--to", "8")
        assert numbers(lines) == list(range(9))
        assert [o["id"] for o in lines[5]["objects"]] == [0] and lines[0]["objects"] == []
        one = lines[5]["objects"][0]
        assert one["segmentation"]["size"] == [68, 90] and len(one["box"]) == 4 and 0 < one["area"] <= 68 * 90
        assert sorted(os.listdir(out)) == ["labels", "tracks.json"]
        assert len(os.listdir(os.path.join(out, "labels"))) == 9
        tracks = json.load(open(os.path.join(out, "tracks.json")))
        assert tracks["videos"][0]["length"] == 9
        seen = [s is not None for s in tracks["annotations"][0]["segmentations"]]
        assert seen == [bool(line["objects"]) for line in lines]
        printed = os.path.join(work, "lines.jsonl")
        with open(printed, "w") as f:
            f.writelines(json.dumps(line) + "\n" for line in lines)
        for dt in (os.path.join(out, "tracks.json"), printed):
            p = subprocess.run([SAMITE, "eval", "--video", "--gt", os.path.join(out, "tracks.json"), "--dt", dt, "--json"],
                               capture_output=True, text=True)
            assert p.returncode == 0 and json.loads(p.stdout)["video"]["HOTA"] == 1.0, p.stdout
        formats(os.path.join(work, "tools"))
        lines, _ = run(0, movie, "--text", "person", "--score", "0.3", "--delay", "2")
        assert numbers(lines) == list(range(9)) and all(abs(l["time"] - 0.04 * l["frame"]) < 1e-6 for l in lines)
        lines, _ = run(0, "-", *BOX, "--delay", "0", stdin=open(movie, "rb"))
        assert numbers(lines) == list(range(9))
        lines, _ = run(0, movie, *BOX, "--direction", "backward", "--start", "1", "--delay", "1")
        assert numbers(lines) == [1, 0]
        lines, _ = run(0, movie, "--text", "person", "--direction", "both", "--start", "4", "--stride", "2", "--delay", "0")
        assert numbers(lines) == [4, 6, 8, 2, 0]
        lines, _ = run(0, "raw:32x16:-", *BOX[:1], "0:2,2,20,12", "--delay", "0", input=bytes(32 * 16 * 3 * 2 + 7))
        assert numbers(lines) == [0, 1]
        lines, _ = run(0, FRAMES, *BOX, "--remove", "3:0", "--delay", "0", "--to", "5")
        assert lines[5]["objects"] == []
        no_waiting()
        damaged(work)
        overlays(work, movie)
        refused(work, movie)
        interrupted(work)
    print("cli_video: fine")


def no_waiting():
    """With --delay 0 the frame that was pointed at shows the answers, all of them."""
    lines, _ = run(0, FRAMES, *BOX, "--object", "7", "--box", "1:5,5,40,40", "--delay", "0", "--to", "2")
    assert [[o["id"] for o in line["objects"]] for line in lines] == [[], [0, 7], [0, 7]], lines
    lines, _ = run(0, FRAMES, "--text", "person", "--score", "1", "--to", "2")
    assert [line["objects"] for line in lines] == [[], [], []]


def damaged(work):
    """A picture that cannot be read ends a folder, or is left out; a cut stream is told, and its frames are used."""
    frames = os.path.join(work, "frames")
    os.mkdir(frames)
    for i in range(6):
        shutil.copy(os.path.join(FRAMES, "%05d.png" % i), frames)
    with open(os.path.join(frames, "00003.png"), "r+b") as f:
        f.truncate(200)
    ask = ("track", frames, *BOX, "--delay", "0", *MODEL[:-1])
    p = subprocess.run([SAMITE, *ask], capture_output=True, text=True)
    assert p.returncode == 3 and len(p.stdout.splitlines()) == 3 and "00003.png" in p.stderr, p.stderr
    p = subprocess.run([SAMITE, *ask, "--skip-bad"], capture_output=True, text=True)
    assert p.returncode == 0 and "left out" in p.stderr and "00003.png" in p.stderr, p.stderr
    assert numbers(map(json.loads, p.stdout.splitlines())) == [0, 1, 2, 4, 5]
    over = os.path.join(work, "skip.avi")
    lines, _ = run(0, frames, *BOX, "--delay", "0", "--skip-bad", "--direction", "both", "--overlay", over)
    assert numbers(lines) == [1, 2, 4, 5, 0], numbers(lines)
    run(3, frames, "--box", "3:5,5,40,40", "--skip-bad", "--no-json")
    whole = b"YUV4MPEG2 W32 H16 F10:1 Ip A1:1 C420jpeg\n" + 2 * (b"FRAME\n" + bytes(32 * 16 * 3 // 2))
    p = subprocess.run([SAMITE, "track", "-", "--box", "0:2,2,20,12", "--delay", "0", *MODEL[:-1]], capture_output=True,
                       input=whole[:-10])
    assert p.returncode == 0 and len(p.stdout.splitlines()) == 1 and b"not whole" in p.stderr, p.stderr


def overlays(work, movie):
    """Whatever way frames are followed, the overlay has them in the order of the video."""
    for name, start, expected in [("backward", "5", 6), ("both", "3", 9)]:
        over = os.path.join(work, name + ".mkv")
        lines, _ = run(0, movie, *BOX, "--direction", name, "--start", start, "--overlay", over)
        again, _ = run(0, over, "--text", "person", "--score", "1")
        assert len(lines) == expected and numbers(again) == list(range(expected))
        times = sorted(line["time"] for line in lines)
        assert all(abs(a - b["time"]) < 2e-3 for a, b in zip(times, again)), (times, again)


def formats(out):
    """Frames as annotation tools read them; ids of objects are kept where a format has a place for them."""
    lines, _ = run(0, FRAMES, *BOX, "--object", "7", "--box", "2:5,5,40,40", "--to", "4", "--out", out, "--format",
                   "coco,png,yolo,labelme,geojson,cvat,voc")
    result = json.load(open(os.path.join(out, "result.json")))
    assert [i["file_name"] for i in result["images"]] == ["%06d.jpg" % i for i in range(5)]
    flat = [(line["frame"] + 1, o["id"], o["area"]) for line in lines for o in line["objects"]]
    assert [(a["image_id"], a["track_id"], a["area"]) for a in result["annotations"]] == flat and len(flat) > 4
    for name in ["labels/000003.txt", "voc/000003.xml", "labels/000003.png", "000003.geojson", "data.yaml"]:
        assert os.path.exists(os.path.join(out, name)), name
    ids = {o["id"] for o in lines[3]["objects"]}
    assert {s["group_id"] for s in json.load(open(os.path.join(out, "labelme/000003.json")))["shapes"]} == ids
    assert all(os.path.exists(os.path.join(out, "masks/000003_%d.png" % i)) for i in ids)
    found = json.load(open(os.path.join(out, "000003.geojson")))["features"]
    assert {f["properties"]["track_id"] for f in found} == ids
    assert open(os.path.join(out, "result.cvat.xml")).read().count('<attribute name="track_id">') == len(flat)
    # every format that can be read back gives the masks of result.json
    for kind, path in [("labelme", "labelme"), ("cvat", "result.cvat.xml")]:
        back = out + "." + kind + ".json"
        p = subprocess.run([SAMITE, "convert-annotations", os.path.join(out, path), back, "--from", kind, "--to", "coco",
                            "-q"], capture_output=True, text=True)
        assert p.returncode == 0, p.stderr
        p = subprocess.run([SAMITE, "eval", "--gt", os.path.join(out, "result.json"), "--dt", back, "--iou", "segm",
                            "--json"], capture_output=True, text=True)
        assert p.returncode == 0 and json.loads(p.stdout)["segm"]["stats"][0] == 1.0, (p.stdout, p.stderr)
    run(2, FRAMES, *BOX, "--format", "coco")
    run(2, FRAMES, *BOX, "--out", out, "--format", "overlay")


def refused(work, movie):
    short = os.path.join(work, "short.mp4")
    open(short, "wb").write(open(movie, "rb").read()[:200])
    dark, small, empty = (os.path.join(work, n) for n in ("dark.pgm", "small.pgm", "empty.mp4"))
    open(dark, "wb").write(b"P5 90 68 255\n" + bytes(90 * 68))
    open(small, "wb").write(b"P5 9 6 255\n" + b"\xff" * 54)
    open(empty, "wb").close()
    for status, words in [(2, (movie,)), (2, (movie, "--text", "x", "--from", "5", "--to", "2")),
                          (2, (movie, "--point", "a:1,2")), (2, (movie, "--box", "0:9,9,1,1")),
                          (2, (movie, "--point", "1:1,1", "--from", "3")), (3, (movie, "--point", "99:1,1", "--no-json")),
                          (3, (movie, "--text", "x", "--from", "500")), (3, (short, "--text", "x")),
                          (3, (os.path.join(work, "none.mp4"), "--text", "x")), (2, (movie, "--text", "x", "--labels")),
                          (2, (movie, "--text", " \t")), (2, (movie, "--text", "")), (3, (movie, "--mask", "0:" + dark)),
                          (3, (movie, "--mask", "0:" + small)), (2, (movie, "--point", "0:nan,1")),
                          (2, (movie, "--point", "0:2000,1")), (2, (movie, "--like", "0:200,200,300,300")),
                          (2, ("raw:0x5:-", *BOX)), (2, ("device:nothing:x", *BOX)), (2, ("device:v4l2", *BOX)),
                          (3, ("device:v4l2:" + os.path.join(work, "no"), *BOX)), (3, (empty, *BOX)),
                          (3, (movie, "--mask", "0:" + os.path.join(FRAMES, "nothing.png"), "--no-json"))]:
        run(status, *words)
    for words in (("--object", "3", "--text", "x"), ("--object", "3", "--object", "4", *BOX)):
        run(2, movie, *words)
    for pixels in (b"", b"short"):
        lines, err = run(3, "raw:90x68:-", "--text", "x", input=pixels)
        assert not lines and "no frame came" in err, err
    lines, _ = run(0, os.path.join(FRAMES, "00000.png"), "--box", "0:20,15,60,50")
    assert numbers(lines) == [0] and len(lines[0]["objects"]) == 1
    # what was finished before a failure is kept, whether it waited or not
    out = os.path.join(work, "kept")
    p = subprocess.run([SAMITE, "track", FRAMES, "--box", "1:20,15,60,50", "--point", "5:4000,1", "--delay", "0", "--out",
                        out, *MODEL], capture_output=True, text=True)
    assert p.returncode == 2 and len(p.stdout.splitlines()) == 5, (p.returncode, p.stdout, p.stderr)
    assert "frame 5: point 1" in p.stderr, p.stderr
    assert json.load(open(os.path.join(out, "tracks.json")))["videos"][0]["length"] == 5
    p = subprocess.run([SAMITE, "track", FRAMES, *BOX, "--remove", "4:77", *MODEL], capture_output=True, text=True)
    assert p.returncode == 2 and numbers(map(json.loads, p.stdout.splitlines())) == [0, 1, 2, 3], (p.stdout, p.stderr)


def interrupted(work):
    """Ctrl-C ends at once, with whole files."""
    many, out = os.path.join(work, "many"), os.path.join(work, "broken")
    os.mkdir(many)
    for i in range(400):
        shutil.copy(os.path.join(FRAMES, "00000.png"), os.path.join(many, "%d.png" % i))
    p = subprocess.Popen([SAMITE, "track", many, *BOX, "--delay", "0", "--out", out, "--overlay",
                          os.path.join(work, "b.avi"), *MODEL], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    for _ in range(4):
        p.stdout.readline()
    p.send_signal(signal.SIGINT)
    p.communicate()
    assert p.returncode == 130, p.returncode
    length = json.load(open(os.path.join(out, "tracks.json")))["videos"][0]["length"]
    assert 3 <= length < 400 and os.path.exists(os.path.join(work, "b.avi"))


if __name__ == "__main__":
    main()
