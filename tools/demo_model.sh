#!/bin/sh
# demo_model.sh - makes the model that comes with samite from a checkpoint, measures it, puts the numbers on its page.
# Usage: tools/demo_model.sh CHECKPOINT.pt [SPRITES.safetensors]
# Changes models/demo.safetensors, docs/demo-model.md, docs/pictures/demo.png. Without a sprite file one is made, for which
# Debian's fonts-noto-color-emoji and python3-pil are needed. Takes a few minutes on one core.
set -eu
[ $# -ge 1 ] && [ -f "$1" ] || { sed -n '2,5s/^# //p' "$0" >&2; exit 2; }
checkpoint=$(realpath "$1")
sprites=${2:+$(realpath "$2")}
cd "$(dirname "$0")/.."
samite=${SAMITE:-build/samite}
work=build/demo-model
export OMP_WAIT_POLICY=passive SAMITE_NO_CACHE=1
rm -rf "$work"
mkdir -p "$work" models
[ -n "$sprites" ] || { sprites=$work/sprites.safetensors; tools/make_sprites.py "$sprites"; }

"$samite" convert "$checkpoint" "$work/demo.safetensors" --dtype f16 --detector --nms 0.5 -q
"$samite" convert "$checkpoint" "$work/f32.safetensors" --dtype f32 --detector --nms 0.5 -q
"$samite" scenes --sprites "$sprites" --count 200 --seed 2026 -o "$work/new"
"$samite" scenes --sprites "$sprites" --count 200 --seed 2026 --held -o "$work/held"
"$samite" convert "$work/demo.safetensors" "$work/int8.safetensors" --dtype int8 --calibrate "$work/new/pictures" \
    --count 16 -t circle -t dog -q

# score NAME MODEL PRECISION
score() {
    for set in new held; do
        "$samite" eval -m "$work/$2.safetensors" --precision "$3" --gt "$work/$set/instances.json" \
            --images "$work/$set/pictures" --iou bbox,segm --nms 0.5 --out "$work/scored-$1-$set" -j 1 -q --json \
            >"$work/$1-$set.json"
    done
    echo "measured: $1"
}
score f32 f32 f32
score f16 demo f32
score bf16 demo bf16
score int8 int8 int8

cp "$work/demo.safetensors" models/demo.safetensors
cmake -S . -B build >/dev/null
"$samite" segment models/scenes/pictures/020.jpg -m models/demo.safetensors -t bee -t whale \
    -o "$work/picture" --format overlay -j 1
cp "$work/picture/020_overlay.png" docs/pictures/demo.png

python3 - "$work" docs/demo-model.md "$checkpoint" <<'END'
import json, os, re, sys
work, page, checkpoint = sys.argv[1:]
kinds = ("f32", "arithmetic in f32, weights as learnt"), ("f16", "the file as it comes, weights in f16"), \
        ("bf16", "`--precision bf16`"), ("int8", "`samite convert --dtype int8`")

def load(kind, name):
    with open("%s/%s-%s.json" % (work, kind, name)) as f:
        return json.load(f)

lines = []
sets = ("new", "", "200 new scenes, sprites of training"), \
       ("held", " --held", "200 new scenes, of names that have some only sprites kept from training")
for name, option, title in sets:
    lines += ["", "%s (`samite scenes --count 200 --seed 2026%s`):" % (title, option), "",
              "| | presence | box AP50 by name | over all pairs | mask AP50 by name | over all pairs |",
              "|---|---|---|---|---|---|"]
    for kind, what in kinds:
        o = load(kind, name)
        cells = ["%.3f" % o["presence"]["accuracy"]]
        for group in "bbox", "segm":
            for value in (lambda g: g["stats"][1]), (lambda g: g["pairs"]["AP50"]):
                cells.append("%.3f, %.3f" % (value(o[group]), value(o[group + "_nms"])))
        lines.append("| %s | %s |" % (what, " | ".join(cells)))

def steps_and_hours():
    """Of the stage that wrote the checkpoint, up to it, from its log; None where there is no log."""
    log = os.path.join(os.path.dirname(checkpoint), "..", "logs", "steps.jsonl")
    name = re.search(r"checkpoint_(\d+)(?:_(\d+))?(?:\.ema)?\.pt$", checkpoint)
    if not name or not os.path.exists(log):
        return None
    epochs, more = int(name[1]), int(name[2] or 0)
    steps, seconds, inside = 0, 0.0, 0
    for line in open(log):
        o = json.loads(line)
        inside += o["epoch"] == epochs
        if o["epoch"] < epochs or (o["epoch"] == epochs and inside <= more):
            steps, seconds = steps + 1, seconds + (SCENES_PER_STEP / o["images_per_s"] if o["images_per_s"] else 0)
    return steps, seconds / 3600

SCENES_PER_STEP = 12
with open(page) as f:
    text = f.read()

def fill(text, mark, body):
    begin, end = "<!-- %s -->\n" % mark, "<!-- end of %s -->" % mark
    head, rest = text.split(begin)
    return head + begin + body.strip("\n") + "\n" + end + rest.split(end)[1]

run = steps_and_hours()
if run:
    text = fill(text, "run", "The weights that come with samite: %d steps of the joint stage, %.1f hours." % run)
with open(page, "w") as f:
    f.write(fill(text, "numbers", "\n".join(lines)))
END
git --no-pager diff --stat -- docs models 2>/dev/null || true
echo "models/demo.safetensors: $(stat -c %s models/demo.safetensors) bytes. Now: look at docs/demo-model.md, build, make test, commit."
