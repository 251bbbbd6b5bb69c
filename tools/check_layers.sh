#!/bin/sh
# check_layers.sh - who may include whom (docs/architecture.md), and what library code must not do. Ends with a count.
set -u
cd "$(dirname "$0")/.." || exit 2
failed=0
checked=0

# complain FILE:LINE TEXT
complain() {
    echo "$1: $2"
    failed=$((failed + 1))
}

# layer FOLDER ALLOWED...: every #include "X/..." below FOLDER has X among ALLOWED or is FOLDER's own.
layer() {
    folder=$1
    own=${folder#src/}
    shift
    [ -d "$folder" ] || return 0
    checked=$((checked + 1))
    found=$(grep -rnE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^"]*/' "$folder")
    old_ifs=$IFS
    IFS='
'
    for line in $found; do
        IFS=$old_ifs
        place=$(echo "$line" | cut -d: -f1,2)
        target=$(echo "$line" | sed 's/.*include[[:space:]]*"\([^"]*\)\/[^"/]*".*/\1/; s/\/.*//')
        case " $own $* " in
            *" $target "*) ;;
            *) complain "$place" "$folder may not include $target/ (allowed: $own $*)" ;;
        esac
    done
    IFS=$old_ifs
}

# never FOLDER PATTERN WHY: no line of code below FOLDER matches.
never() {
    [ -d "$1" ] || return 0
    checked=$((checked + 1))
    hits=$(grep -rnE --include='*.[ch]' "$2" "$1" | grep -vE '^[^:]*:[0-9]+:[[:space:]]*(/?\*|//)')
    if [ -n "$hits" ]; then
        echo "$hits"
        complain "$1" "$3"
    fi
}

# A header named without a folder lies beside its user or is a table made when building; samite.h is everybody's.
checked=$((checked + 1))
for line in $(grep -rnoE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*"[^/"]+"' src cli | tr -d ' \t'); do
    file=${line%%:*}
    name=$(echo "$line" | cut -d'"' -f2)
    [ "$name" = samite.h ] || [ -e "$(dirname "$file")/$name" ] || grep -rq "samite_table($name " src/*/*.cmake ||
        complain "$(echo "$line" | cut -d: -f1,2)" "\"$name\" is not in the same folder"
done

layer cli base
layer src/base
layer src/kernels
layer src/formats base
layer src/io base
layer src/ops kernels base
layer src/model ops base
for upper in export track runtime; do
    layer "src/$upper" model ops io formats base
done
layer src/eval runtime model ops io formats base       # runs a network with its weights
layer src/train eval runtime model ops io formats base # reads data as evaluation does, and validates with it

never src '(^|[^a-zA-Z_.>])(printf|puts|putchar|perror|exit|_exit|abort|vprintf)[[:space:]]*\(' \
    "library code never prints or exits"
never src '(^|[^a-zA-Z_])(setenv|putenv|signal|sigaction)[[:space:]]*\(' \
    "library code leaves the environment and signals alone"
never src/model '^[[:space:]]*#[[:space:]]*if(def)?[[:space:]]|getenv' "the network knows no #ifdef and no environment"
never src '/(work|root|home|tmp)/[a-z]' "no path of a particular machine"

echo "layers: $checked checks, $failed failed"
[ "$failed" -eq 0 ]
