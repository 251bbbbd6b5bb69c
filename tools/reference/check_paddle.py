"""check_paddle.py - runs exported parts in PaddlePaddle and in ONNX Runtime on the same inputs and compares every output.

Usage: check_paddle.py PADDLE_FOLDER ONNX_FOLDER     both written by samite export from one model, with the same options
Needs numpy, onnxruntime and paddlepaddle. Exit status 1 when an output differs by more than 1e-4 or a cosine is below 0.9999.
"""
import os
import sys

os.environ["FLAGS_use_mkldnn"] = "0"
import numpy as np
import onnxruntime
from paddle import inference

PARTS = ["image_encoder", "text_encoder", "grounding_head", "interactive_encoder", "interactive_head", "tracker_neck",
         "memory_attention", "tracked_head", "memory_encoder", "object_pointers", "mask_prompt"]


def made_up(spec, known, rng):
    """A value for an input: an output of an earlier part, or something of the right kind."""
    name = "text_attention_mask" if spec.name == "text_attention_mask_float" else spec.name
    if name in known:
        return known[name]
    if spec.name == "token_ids":
        ids = np.zeros(spec.shape, np.int64)
        ids[0, :4] = [49406, 320, 1929, 49407]
        return ids
    if spec.type == "tensor(int64)":
        return (np.arange(np.prod(spec.shape)).reshape(spec.shape) % 3 - 1).astype(np.int64)
    if spec.name in ("boxes", "has_mask_input"):
        return np.full(spec.shape, 0.4, np.float32)
    return rng.standard_normal(spec.shape).astype(np.float32)


def in_paddle(prefix, feeds):
    config = inference.Config(prefix + ".json", prefix + ".pdiparams")
    config.disable_mkldnn()
    config.disable_glog_info()
    predictor = inference.create_predictor(config)
    for name in predictor.get_input_names():
        predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(feeds[name]))
    predictor.run()
    return {name: predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()}


def main():
    paddle_folder, onnx_folder = sys.argv[1:]
    rng, known, bad = np.random.default_rng(0), {}, 0
    print("%-44s %12s %12s" % ("output", "max |diff|", "cosine"))
    for part in PARTS:
        path = os.path.join(onnx_folder, part + ".onnx")
        if not os.path.exists(path) or not os.path.exists(os.path.join(paddle_folder, part + ".json")):
            continue
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        feeds = {i.name: made_up(i, known, rng) for i in session.get_inputs()}
        reference = dict(zip([o.name for o in session.get_outputs()], session.run(None, feeds)))
        known.update(reference)
        for name, value in in_paddle(os.path.join(paddle_folder, part), feeds).items():
            a, b = reference[name].ravel().astype(np.float64), value.ravel().astype(np.float64)
            difference = float(np.abs(a - b).max())
            cosine = float(a @ b / np.sqrt((a @ a) * (b @ b))) if a.any() else 1.0
            good = difference <= 1e-4 and cosine >= 0.9999
            bad += not good
            print("%-44s %12.3g %12.8f%s" % (part + " " + name, difference, cosine, "" if good else "  OUT OF TOLERANCE"))
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
