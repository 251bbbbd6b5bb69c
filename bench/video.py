#!/usr/bin/env python3
"""video.py - what following objects costs: frames per second, seconds per frame and object, resident memory.

    bench/video.py build/samite -m sam3.pt --objects 1,20 -- --precision bf16     # 8 frames
    bench/video.py build/samite -m formula:tiny --frames 1001                     # memory at frames 10, 100 and 1000

Objects are boxes on the first of synthetic frames, which come through a pipe. From frame 7 on an object looks back at as
many frames as it ever does; "full" are means of those frames only: seconds of the whole frame by the clock and by the
processors (-j 1 makes the latter good on a busy machine), and following alone, which is the whole without the mean of
encoding and detecting. Options behind -- go to samite track. Standard library only.
"""

import argparse
import os
import re
import subprocess
import sys
import threading
import time

WIDTH, HEIGHT, WIDE = 320, 240, 5
FULL = 7            # first frame with a full memory


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


def processor(pid):
    with open("/proc/%d/stat" % pid) as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def feed(pipe, frames):
    try:
        for n in range(frames):
            pipe.write(frame(n))
        pipe.close()
    except BrokenPipeError:
        pass


def watch(p, marks):
    """Reads result lines as they come: ({frame: MB}, [(clock, processor seconds) when frame n was done])."""
    memory, done, last = {}, [], None
    for n, _ in enumerate(p.stdout):
        last = (n, resident(p.pid))
        done.append((time.monotonic(), processor(p.pid)))
        if n in marks:
            memory[n] = last[1]
    if last:
        memory[last[0]] = last[1]
    return memory, done


def steady(done):
    """Clock and processor seconds of a frame with a full memory."""
    n = len(done) - FULL
    return [(done[-1][i] - done[FULL - 1][i]) / n if n > 0 else float("nan") for i in (0, 1)]


def measure(a, objects):
    """Seconds per frame and {frame: MB}. Without objects words that find nothing are asked."""
    ask = boxes(objects) if objects else ["--text", "thing", "--score", "1"]
    p = subprocess.Popen([a.samite, "track", "raw:%dx%d@25:-" % (WIDTH, HEIGHT), "-m", a.model, "--delay", "0", *ask,
                          *a.more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    said = []
    reader = threading.Thread(target=lambda: said.append(p.stderr.read()))
    writer = threading.Thread(target=feed, args=(p.stdin, a.frames))
    reader.start()
    writer.start()
    memory, done = watch(p, a.marks)
    writer.join()
    reader.join()
    text = said[0].decode(errors="replace")
    if p.wait():
        raise SystemExit(text.strip().splitlines()[-1])
    found = re.search(r"(\d+) frames in ([\d.]+) s, .*: ([\d.]+) s encoding, ([\d.]+) s detecting, "
                      r"([\d.]+) s following", text)
    n, whole, encode, detect, follow = map(float, found.groups())
    clock, cpu = steady(done)
    return {"fps": n / whole, "encode": encode / n, "detect": detect / n, "follow": follow / max(n - 1, 1),
            "full": clock, "full_cpu": cpu, "full_follow": clock - (encode + detect) / n, "memory": memory}


def compare(objects, m, one):
    return "%d objects: the whole frame costs %.2f times that with one (by the processors %.2f), following %.1f times" % (
        objects, m["full"] / one["full"], m["full_cpu"] / one["full_cpu"], m["full_follow"] / one["full_follow"])


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("samite")
    p.add_argument("-m", "--model", required=True)
    p.add_argument("--frames", type=int, default=8)
    p.add_argument("--objects", default="0,1,20", help="numbers of objects, with commas (default: %(default)s)")
    p.add_argument("--marks", default="10,50,100,1000", help="frames whose memory is told (default: %(default)s)")
    words, behind = sys.argv[1:], []
    if "--" in words:
        at = words.index("--")
        words, behind = words[:at], words[at + 1:]
    a = p.parse_args(words)
    a.more, a.marks = behind, [int(n) for n in a.marks.split(",")]
    print("| objects | frames/s | encode s | detect s | follow s, mean | full: frame s | processor s | follow s |"
          " per object s | of encoding | resident MB |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    rows = {}
    for objects in map(int, a.objects.split(",")):
        m = rows[objects] = measure(a, objects)
        memory = ", ".join("%.0f at %d" % (mb, n) for n, mb in sorted(m["memory"].items()))
        each = m["full_follow"] / max(objects, 1)
        print("| %d | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.3f | %.1f %% | %s |" % (
            objects, m["fps"], m["encode"], m["detect"], m["follow"], m["full"], m["full_cpu"], m["full_follow"], each,
            100 * each / m["encode"], memory), flush=True)
    for objects in (n for n in rows if n > 1 and 1 in rows):
        print(compare(objects, rows[objects], rows[1]), flush=True)


if __name__ == "__main__":
    main()
