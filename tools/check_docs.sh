#!/bin/bash
# check_docs.sh - runs the commands of the documentation that are marked for it, and compares options with --help.
#
# A block of ```sh that follows a line <!-- ci --> is run as it stands, in a folder where photo.jpg, photos/, golden/, models/scenes/
# and sam3.pt exist; sam3.pt holds the weights of formula:tiny.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
samite=${SAMITE:-$here/build/samite}
passed=0
failed=0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ -x "$samite" ] || { echo "check_docs: $samite is not built"; exit 2; }
mkdir "$work/bin"
ln -s "$samite" "$work/bin/samite"
export PATH="$work/bin:$PATH"
unset SAMITE_MODEL
export SAMITE_CACHE_DIR="$work/cache"

verdict() { # STATUS NAME
    if [ "$1" -eq 0 ]; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $2"; fi
}

# A new folder with what the documentation speaks of.
prepare() {
    rm -rf "$work/run"
    mkdir -p "$work/run/photos"
    cp "$here/docs/pictures/scene.jpg" "$work/run/photo.jpg"
    local name
    for name in 1 2 3; do cp "$here/docs/pictures/scene.jpg" "$work/run/photos/$name.jpg"; done
    cp -r "$here/tests/golden" "$work/run/golden"
    mkdir "$work/run/models" && cp -r "$here/models/scenes" "$work/run/models/scenes"
    cp "$work/tiny.pt" "$work/run/sam3.pt"
}

# split FILE: writes the marked blocks of FILE to $work/block.1 ...; prints how many.
split() {
    rm -f "$work"/block.*
    awk -v out="$work/block." '
        /^<!-- ci -->$/ { marked = 1; next }
        /^```sh$/ && marked { n++; inside = 1; marked = 0; next }
        /^```/ { inside = 0 }
        inside { print > (out n) }
        /[^ ]/ && !inside { if ($0 !~ /^<!--/) marked = 0 }
        END { print n + 0 }' "$1"
}

samite convert formula:tiny "$work/tiny.pt" || exit 1
for page in "$here"/README.md "$here"/docs/*.md; do
    count=$(split "$page")
    for ((k = 1; k <= count; k++)); do
        prepare
        (cd "$work/run" && bash -e "$work/block.$k") >"$work/output" 2>&1 </dev/null
        status=$?
        [ "$status" -eq 0 ] || { cat "$work/block.$k" "$work/output"; }
        verdict "$status" "$(basename "$page"), block $k"
    done
done

# Every option of a command is on its page, and every option on a page exists.
options_of() { samite "$1" --help | grep -oE '^ +(-[a-z], )?--[a-z-]+' | grep -oE -- '--[a-z-]+' | sort -u; }
for pair in segment:segment track:video align:align info:models convert:models bench:commands doctor:commands export:export import:export encode:commands train:training merge:training start:training scenes:training eval:eval; do
    command=${pair%%:*}
    page="$here/docs/${pair##*:}.md"
    for name in $(options_of "$command"); do
        grep -qE -- "(^|[^a-z-])$name([^a-z-]|\$)" "$page" "$here/docs/commands.md"
        verdict $? "$name of samite $command is described nowhere"
    done
done
for command in segment everything track info convert align bench doctor export import encode train merge start scenes eval; do options_of "$command"; done | sort -u >"$work/known"
printf '%s\n' --help --version >>"$work/known"
for page in "$here"/docs/{segment,video,align,models,commands,errors,export,training,eval,demo-model}.md; do
    for name in $(grep -oE -- '`--[a-z-]+' "$page" | tr -d '`' | sort -u); do
        grep -qx -- "$name" "$work/known"
        verdict $? "$(basename "$page") speaks of $name, which no command knows"
    done
done

echo "documentation: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
