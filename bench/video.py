#!/usr/bin/env python3
"""video.py - what following objects costs: frames per second, seconds per frame and object, resident memory.

    bench/video.py build/samite -m sam3.pt                        # 0, 1 and 20 objects, 6 frames
    bench/video.py build/samite -m formula:tiny --frames 1001     # memory at frames 10, 100 and 1000

Objects are boxes on the first of synthetic frames, which come through a pipe. Options behind -- go to samite track, for
example -- --precision bf16 -j 2. Standard library only.
"""

import argparse
import re
import subprocess
import sys
import threading

WIDTH, HEIGHT, WIDE = 320, 240, 5
MARKS = (10, 100, 1000)


def frame(n):
    """A pattern that drifts to the right."""
    row = bytes(v for x in range(WIDTH) for v in ((x + 2 * n) % 64 * 3 + 30, x % 256, (x * 5 + n) % 256))
    other = bytes(255 - v for v in row)
    return b"".join(row if (y // 48) % 2 else other for y in range(HEIGHT))


def boxes(objects):
    words, tall = [], max(1, (objects + WIDE - 1) // WIDE)
    for i in range(objects):
        x, y = i % WIDE * WIDTH // WIDE, i // WIDE * HEIGHT // tall
        box = (x + 4, y + 4, x + WIDTH // WIDE - 4, y + HEIGHT // tall - 4)
        words += ["--object", str(i), "--box", "0:" + ",".join(map(str, box))]
    return words


def resident(pid):
    with open("/proc/%d/status" % pid) as f:
        return int(re.search(r"VmRSS:\s+(\d+)", f.read()).group(1)) / 1024


def feed(pipe, frames):
    try:
        for n in range(frames):
            pipe.write(frame(n))
        pipe.close()
    except BrokenPipeError:
        pass


def measure(a, objects):
    """Seconds per frame (encoding, following) and {frame: MB}. Without objects words that find nothing are asked."""
    ask = boxes(objects) if objects else ["--text", "thing", "--score", "1"]
    p = subprocess.Popen([a.samite, "track", "raw:%dx%d@25:-" % (WIDTH, HEIGHT), "-m", a.model, "--delay", "0", *ask,
                          *a.more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = []
    reader = threading.Thread(target=lambda: said.append(p.stderr.read()))
    writer = threading.Thread(target=feed, args=(p.stdin, a.frames))
    reader.start()
    writer.start()
    memory, last = {}, None
    for n, _ in enumerate(p.stdout):
        last = (n, resident(p.pid))
        if n in MARKS:
            memory[n] = last[1]
    if last:
        memory[last[0]] = last[1]
    writer.join()
    reader.join()
    text = said[0].decode(errors="replace")
    if p.wait():
        raise SystemExit(text.strip().splitlines()[-1])
    found = re.search(r"(\d+) frames in ([\d.]+) s, .*: ([\d.]+) s encoding, ([\d.]+) s detecting, ([\d.]+) s following", text)
    n, whole, encode, detect, follow = map(float, found.groups())
    return {"fps": n / whole, "encode": encode / n, "detect": detect / n, "follow": follow / max(n - 1, 1), "memory": memory}


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("samite")
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--frames", type=int, default=6)
    p.add_argument("--objects", default="0,1,20", help="numbers of objects, with commas (default: %(default)s)")
    words, behind = sys.argv[1:], []
    if "--" in words:
        at = words.index("--")
        words, behind = words[:at], words[at + 1:]
    a = p.parse_args(words)
    a.more = behind
    print("| objects | frames/s | encode s | detect s | follow s | per object s | share of the frame | resident MB |")
    print("|---|---|---|---|---|---|---|---|")
    one = None
    for objects in map(int, a.objects.split(",")):
        m = measure(a, objects)
        one = m["follow"] if objects == 1 else one
        spent = m["encode"] + m["detect"] + m["follow"]
        memory = ", ".join("%.0f at %d" % (mb, n) for n, mb in sorted(m["memory"].items()))
        print("| %d | %.3f | %.3f | %.3f | %.3f | %.3f | %.0f %% | %s |" % (
            objects, m["fps"], m["encode"], m["detect"], m["follow"], m["follow"] / max(objects, 1),
            100 * m["follow"] / spent, memory), flush=True)
        if objects > 1 and one:
            print("following %d objects costs %.1f times one" % (objects, m["follow"] / one), flush=True)


if __name__ == "__main__":
    main()
