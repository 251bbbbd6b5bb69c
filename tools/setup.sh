#!/bin/sh
# setup.sh - installs what building needs from Debian's packages; quiet and off-line when everything is there.
# Usage: tools/setup.sh [ci]     ci: also the compiler and the runtime of sanitizers and fuzzing
set -eu

packages="build-essential cmake ninja-build pkg-config python3 python3-pip ca-certificates
    libdnnl-dev libjansson-dev libyajl-dev libjpeg62-turbo-dev libpng-dev libwebp-dev libtiff-dev zlib1g-dev
    libfreetype-dev libfontconfig-dev fonts-dejavu-core libutf8proc-dev libcmocka-dev
    libavformat-dev libavcodec-dev libswscale-dev libavutil-dev libavdevice-dev"
[ "${1:-}" = ci ] && packages="$packages clang libclang-rt-14-dev libomp-dev"

if ! command -v dpkg-query >/dev/null 2>&1; then
    echo "setup: this is not Debian; building needs what these packages hold:" $packages
    exit 0
fi

missing=""
for package in $packages; do
    status=$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null || true)
    [ "$status" = "install ok installed" ] || missing="$missing $package"
done
[ -z "$missing" ] && exit 0

if [ "$(id -u)" -eq 0 ]; then
    as_root=""
elif command -v sudo >/dev/null 2>&1; then
    as_root="sudo"
else
    echo "setup: these packages are missing, and there is no sudo to install them:$missing" >&2
    echo "setup: as root: apt-get update && apt-get install -y$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
$as_root apt-get update -q </dev/null
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends $missing </dev/null
