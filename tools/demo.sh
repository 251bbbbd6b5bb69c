#!/bin/sh
# demo.sh - looks into a picture of this repository with SAMITE_MODEL, or with made-up weights when there is none.
set -eu
cd "$(dirname "$0")/.."
picture=docs/pictures/scene.jpg
out=build/demo
rm -rf "$out"

if [ -n "${SAMITE_MODEL:-}" ]; then
    echo "Looking for a dog, a red car and a tree in $picture with $SAMITE_MODEL:"
    build/samite segment "$picture" --text dog --text "red car" --text tree --out "$out"
    echo
    echo "The picture with masks, boxes and names: $out/scene_overlay.png"
    exit 0
fi

echo "Looking for a dog, a red car and a tree in $picture with formula:small:"
build/samite segment "$picture" -m formula:small --text dog --text "red car" --text tree --score 0 --max-det 2 \
    --out "$out"
cat <<END

The picture with masks, boxes and names: $out/scene_overlay.png

formula:small is a small network whose weights come from a formula. It shows that everything runs, and gives the same
numbers everywhere, but it has learned nothing: its masks mean nothing. For real results get sam3.pt (facebook/sam3 on
Hugging Face, after accepting Meta's licence there) and run

    build/samite segment $picture -m sam3.pt --text dog --text "red car" --text tree --out $out
END
