#!/bin/sh
# get_onnxruntime.sh - fetches ONNX Runtime as a python package for optional checks and prints the path of its library.
# Usage: tools/get_onnxruntime.sh FOLDER     Prints nothing, with status 0, where it cannot be had (no network, no pip).
set -u
folder=$1
library() { ls "$folder"/lib/python3*/site-packages/onnxruntime/capi/libonnxruntime.so.* 2>/dev/null | tail -n 1; }
if [ -z "$(library)" ]; then
    { [ -x "$folder/bin/pip" ] || python3 -m venv "$folder"; } >/dev/null 2>&1 &&
        "$folder/bin/pip" install --quiet 'onnxruntime>=1.17' >/dev/null 2>&1
fi
library
exit 0
