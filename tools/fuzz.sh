#!/bin/sh
# fuzz.sh - runs every fuzz target of a build for some seconds. Usage: tools/fuzz.sh BUILD SECONDS
# Seeds are taken from tests/fuzz/seeds/NAME where they exist; what crashes a target stays in BUILD/crashes.
set -u
here=$(cd "$(dirname "$0")/.." && pwd)
build=$1
seconds=$2
mkdir -p "$build/crashes"
passed=0
failed=0
for target in $(find "$build" -type f -name 'fuzz_*' -perm -u+x | sort); do
    name=$(basename "$target" | sed 's/^fuzz_//')
    corpus="$build/corpus/$name"
    seeds="$here/tests/fuzz/seeds/$name"
    mkdir -p "$corpus"
    [ -d "$seeds" ] || seeds=""
    if "$target" -max_total_time="$seconds" -timeout=20 -rss_limit_mb=3000 -print_final_stats=0 -verbosity=0 \
        -artifact_prefix="$build/crashes/$name-" "$corpus" $seeds >"$build/crashes/$name.log" 2>&1 </dev/null; then
        passed=$((passed + 1))
        echo "fuzz $name: ok"
    else
        failed=$((failed + 1))
        echo "fuzz $name: FAILED"
        tail -n 40 "$build/crashes/$name.log"
    fi
done
echo "fuzz: $passed passed, $failed failed"
[ "$failed" -eq 0 ] && [ "$passed" -gt 0 ]
