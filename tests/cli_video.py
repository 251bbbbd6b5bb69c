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
        p = subprocess.run([SAMITE, "eval", "--video", "--gt", os.path.join(out, "tracks.json"), "--dt",
                            os.path.join(out, "tracks.json"), "--json"], capture_output=True, text=True)
        assert p.returncode == 0 and json.loads(p.stdout)["video"]["HOTA"] == 1.0, p.stdout
        lines, _ = run(0, movie, "--text", "person", "--score", "0.3", "--delay", "2")
        assert numbers(lines) == list(range(9)) and abs(lines[1]["time"] - 0.04) < 1e-6
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
        refused(work, movie)
        interrupted(work)
    print("cli_video: fine")


def refused(work, movie):
    short = os.path.join(work, "short.mp4")
    open(short, "wb").write(open(movie, "rb").read()[:200])
    for status, words in [(2, (movie,)), (2, (movie, "--text", "x", "--from", "5", "--to", "2")),
                          (2, (movie, "--point", "a:1,2")), (2, (movie, "--box", "0:9,9,1,1")),
                          (2, (movie, "--point", "1:1,1", "--from", "3")), (3, (movie, "--point", "99:1,1", "--no-json")),
                          (3, (movie, "--text", "x", "--from", "500")), (3, (short, "--text", "x")),
                          (3, (os.path.join(work, "none.mp4"), "--text", "x")), (2, (movie, "--text", "x", "--labels")),
                          (2, (movie, "--text", "x", "--direction", "both", "--overlay", "o.mp4")),
                          (3, (movie, "--mask", "0:" + os.path.join(FRAMES, "nothing.png"), "--no-json"))]:
        run(status, *words)
    # what was finished before a failure is kept
    out = os.path.join(work, "kept")
    p = subprocess.run([SAMITE, "track", FRAMES, "--box", "1:20,15,60,50", "--point", "5:4000,1", "--delay", "0", "--out",
                        out, *MODEL], capture_output=True, text=True)
    assert p.returncode == 2 and len(p.stdout.splitlines()) == 5, (p.returncode, p.stdout, p.stderr)
    assert json.load(open(os.path.join(out, "tracks.json")))["videos"][0]["length"] == 5


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
