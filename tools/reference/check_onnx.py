"""check_onnx.py - the official checker of ONNX on exported parts, shapes worked out again included.

Usage: check_onnx.py FOLDER     Needs onnx. Exit status 1 when a file is refused.
"""
import glob
import os
import sys

import onnx

bad = 0
for path in sorted(glob.glob(os.path.join(sys.argv[1], "*.onnx"))):
    try:
        onnx.checker.check_model(path, full_check=True)
        print("%-24s ok" % os.path.basename(path))
    except onnx.checker.ValidationError as e:
        bad += 1
        print("%-24s %s" % (os.path.basename(path), e))
sys.exit(1 if bad else 0)
