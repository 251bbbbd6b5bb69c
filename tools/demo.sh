#!/bin/sh
# demo.sh - looks into a drawn scene with the model that comes with samite, or with SAMITE_MODEL into a picture.
set -eu
cd "$(dirname "$0")/.."
out=build/demo
rm -rf "$out"

if [ -n "${SAMITE_MODEL:-}" ]; then
    picture=docs/pictures/scene.jpg
    echo "Looking for a dog, a red car and a tree in $picture with $SAMITE_MODEL:"
    build/samite segment "$picture" --text dog --text "red car" --text tree --out "$out"
    echo
    echo "The picture with masks, boxes and names: $out/scene_overlay.png"
    exit 0
fi

picture=models/scenes/pictures/020.jpg
echo "Looking for bees, whales, a bicycle and a purple triangle in $picture:"
build/samite segment "$picture" --text bee --text whale --text bicycle --text "purple triangle" --out "$out"
cat <<END

The picture with masks, boxes and names: $out/020_overlay.png
This model knows drawings only (docs/demo-model.md).
For photographs get sam3.pt (facebook/sam3 on Hugging Face): build/samite segment photo.jpg -m sam3.pt --text dog --out results
END
