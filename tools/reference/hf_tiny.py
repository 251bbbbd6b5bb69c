"""Makes a tiny SAM 3 in the naming of Hugging Face transformers, holding the formula weights, and checks it.

    python hf_tiny.py --out DIR [--golden ../../tests/golden/tiny/tiny.safetensors]
    python hf_tiny.py --out ../../tests/golden/formats/hf --mini

Needs transformers (with Sam3VideoModel), torch, safetensors, numpy. The model has the sizes of the reference's preset
"tiny". Each of its tensors gets what the formula gives for the official tensor that it corresponds to. DIR gets a
folder as save_pretrained writes it. With --golden, its outputs are compared with those of the official code for the
same input, which proves the correspondence. --mini makes a far smaller model in bf16 for the C test, with official.txt:
names and shapes of the official tensors that it corresponds to.
"""

import argparse
import os
import re
import sys

import torch
from safetensors.torch import load_file, save_file

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from make_torch_fixtures import formula  # noqa: E402

IMAGE = 112

# Name in transformers -> official name. Rows are tried in order; the first that matches the whole name counts.
# Q stands for q, k or v: a third of an official tensor.
RULES = [
    # image backbone and the two necks
    (r"detector_model\.vision_encoder\.backbone\.embeddings\.position_embeddings",
     "detector.backbone.vision_backbone.trunk.pos_embed"),
    (r"detector_model\.vision_encoder\.backbone\.embeddings\.patch_embeddings\.projection\.",
     "detector.backbone.vision_backbone.trunk.patch_embed.proj."),
    (r"detector_model\.vision_encoder\.backbone\.layer_norm\.", "detector.backbone.vision_backbone.trunk.ln_pre."),
    (r"detector_model\.vision_encoder\.backbone\.layers\.(\d+)\.attention\.Q_proj\.",
     r"detector.backbone.vision_backbone.trunk.blocks.\1.attn.qkv."),
    (r"detector_model\.vision_encoder\.backbone\.layers\.(\d+)\.attention\.o_proj\.",
     r"detector.backbone.vision_backbone.trunk.blocks.\1.attn.proj."),
    (r"detector_model\.vision_encoder\.backbone\.layers\.(\d+)\.layer_norm(\d)\.",
     r"detector.backbone.vision_backbone.trunk.blocks.\1.norm\2."),
    (r"detector_model\.vision_encoder\.backbone\.layers\.(\d+)\.mlp\.",
     r"detector.backbone.vision_backbone.trunk.blocks.\1.mlp."),
    (r"detector_model\.vision_encoder\.neck\.fpn_layers\.", "detector.backbone.vision_backbone.convs."),
    (r"tracker_neck\.fpn_layers\.", "detector.backbone.vision_backbone.sam2_convs."),
    # text
    (r"detector_model\.text_encoder\.(?:text_model\.)?embeddings\.token_embedding\.",
     "detector.backbone.language_backbone.encoder.token_embedding."),
    (r"detector_model\.text_encoder\.(?:text_model\.)?embeddings\.position_embedding\.weight",
     "detector.backbone.language_backbone.encoder.positional_embedding"),
    (r"detector_model\.text_encoder\.(?:text_model\.)?final_layer_norm\.",
     "detector.backbone.language_backbone.encoder.ln_final."),
    (r"detector_model\.text_encoder\.text_projection\.weight",
     "detector.backbone.language_backbone.encoder.text_projection"),
    (r"detector_model\.text_encoder\.(?:text_model\.)?encoder\.layers\.(\d+)\.self_attn\.",
     r"detector.backbone.language_backbone.encoder.transformer.resblocks.\1.attn."),
    (r"detector_model\.text_encoder\.(?:text_model\.)?encoder\.layers\.(\d+)\.layer_norm(\d)\.",
     r"detector.backbone.language_backbone.encoder.transformer.resblocks.\1.ln_\2."),
    (r"detector_model\.text_encoder\.(?:text_model\.)?encoder\.layers\.(\d+)\.mlp\.fc1\.",
     r"detector.backbone.language_backbone.encoder.transformer.resblocks.\1.mlp.c_fc."),
    (r"detector_model\.text_encoder\.(?:text_model\.)?encoder\.layers\.(\d+)\.mlp\.fc2\.",
     r"detector.backbone.language_backbone.encoder.transformer.resblocks.\1.mlp.c_proj."),
    (r"detector_model\.text_projection\.", "detector.backbone.language_backbone.resizer."),
    # geometry and fusion encoders
    (r"detector_model\.geometry_encoder\.vision_layer_norm\.", "detector.geometry_encoder.img_pre_norm."),
    (r"detector_model\.geometry_encoder\.prompt_layer_norm\.", "detector.geometry_encoder.norm."),
    (r"detector_model\.geometry_encoder\.output_layer_norm\.", "detector.geometry_encoder.encode_norm."),
    (r"detector_model\.geometry_encoder\.layers\.", "detector.geometry_encoder.encode."),
    (r"detector_model\.geometry_encoder\.", "detector.geometry_encoder."),
    (r"detector_model\.detr_encoder\.", "detector.transformer.encoder."),
    # decoder and scoring
    (r"detector_model\.detr_decoder\.layers\.(\d+)\.text_cross_attn_layer_norm\.",
     r"detector.transformer.decoder.layers.\1.catext_norm."),
    (r"detector_model\.detr_decoder\.layers\.(\d+)\.vision_cross_attn_layer_norm\.",
     r"detector.transformer.decoder.layers.\1.norm1."),
    (r"detector_model\.detr_decoder\.layers\.(\d+)\.self_attn_layer_norm\.",
     r"detector.transformer.decoder.layers.\1.norm2."),
    (r"detector_model\.detr_decoder\.layers\.(\d+)\.mlp_layer_norm\.",
     r"detector.transformer.decoder.layers.\1.norm3."),
    (r"detector_model\.detr_decoder\.layers\.(\d+)\.text_cross_attn\.",
     r"detector.transformer.decoder.layers.\1.ca_text."),
    (r"detector_model\.detr_decoder\.layers\.(\d+)\.vision_cross_attn\.",
     r"detector.transformer.decoder.layers.\1.cross_attn."),
    (r"detector_model\.detr_decoder\.presence_head\.", "detector.transformer.decoder.presence_token_head."),
    (r"detector_model\.detr_decoder\.presence_layer_norm\.", "detector.transformer.decoder.presence_token_out_norm."),
    (r"detector_model\.detr_decoder\.output_layer_norm\.", "detector.transformer.decoder.norm."),
    (r"detector_model\.detr_decoder\.box_head\.", "detector.transformer.decoder.bbox_embed."),
    (r"detector_model\.detr_decoder\.box_rpb_embed_([xy])\.", r"detector.transformer.decoder.boxRPB_embed_\1."),
    (r"detector_model\.detr_decoder\.", "detector.transformer.decoder."),
    (r"detector_model\.dot_product_scoring\.text_mlp\.", "detector.dot_prod_scoring.prompt_mlp."),
    (r"detector_model\.dot_product_scoring\.text_mlp_out_norm\.", "detector.dot_prod_scoring.prompt_mlp.out_norm."),
    (r"detector_model\.dot_product_scoring\.text_proj\.", "detector.dot_prod_scoring.prompt_proj."),
    (r"detector_model\.dot_product_scoring\.query_proj\.", "detector.dot_prod_scoring.hs_proj."),
    # mask head
    (r"detector_model\.mask_decoder\.mask_embedder\.", "detector.segmentation_head.mask_predictor.mask_embed."),
    (r"detector_model\.mask_decoder\.instance_projection\.", "detector.segmentation_head.instance_seg_head."),
    (r"detector_model\.mask_decoder\.semantic_projection\.", "detector.segmentation_head.semantic_seg_head."),
    (r"detector_model\.mask_decoder\.prompt_cross_attn_norm\.", "detector.segmentation_head.cross_attn_norm."),
    (r"detector_model\.mask_decoder\.prompt_cross_attn\.", "detector.segmentation_head.cross_attend_prompt."),
    (r"detector_model\.mask_decoder\.", "detector.segmentation_head."),
    # tracker
    (r"tracker_model\.memory_temporal_positional_encoding", "tracker.maskmem_tpos_enc"),
    (r"tracker_model\.no_memory_embedding", "tracker.no_mem_embed"),
    (r"tracker_model\.no_memory_positional_encoding", "tracker.no_mem_pos_enc"),
    (r"tracker_model\.no_object_pointer", "tracker.no_obj_ptr"),
    (r"tracker_model\.occlusion_spatial_embedding_parameter", "tracker.no_obj_embed_spatial"),
    (r"tracker_model\.temporal_positional_encoding_projection_layer\.", "tracker.obj_ptr_tpos_proj."),
    (r"tracker_model\.object_pointer_proj\.", "tracker.obj_ptr_proj."),
    (r"tracker_model\.memory_attention\.layer_norm\.", "tracker.transformer.encoder.norm."),
    (r"tracker_model\.memory_attention\.", "tracker.transformer.encoder."),
    (r"tracker_model\.memory_encoder\.projection\.", "tracker.maskmem_backbone.out_proj."),
    (r"tracker_model\.memory_encoder\.feature_projection\.", "tracker.maskmem_backbone.pix_feat_proj."),
    (r"tracker_model\.memory_encoder\.memory_fuser\.layers\.(\d+)\.scale",
     r"tracker.maskmem_backbone.fuser.layers.\1.gamma"),
    (r"tracker_model\.memory_encoder\.memory_fuser\.layers\.(\d+)\.depthwise_conv\.",
     r"tracker.maskmem_backbone.fuser.layers.\1.dwconv."),
    (r"tracker_model\.memory_encoder\.memory_fuser\.layers\.(\d+)\.pointwise_conv(\d)\.",
     r"tracker.maskmem_backbone.fuser.layers.\1.pwconv\2."),
    (r"tracker_model\.memory_encoder\.memory_fuser\.", "tracker.maskmem_backbone.fuser."),
    (r"tracker_model\.memory_encoder\.mask_downsampler\.", "tracker.maskmem_backbone.mask_downsampler."),
    (r"tracker_model\.(?:shared_image_embedding|prompt_encoder\.shared_embedding)\.positional_embedding",
     "tracker.sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"),
    (r"tracker_model\.prompt_encoder\.point_embed\.weight", "tracker.sam_prompt_encoder.point_embeddings"),
    (r"tracker_model\.prompt_encoder\.mask_embed\.conv1\.", "tracker.sam_prompt_encoder.mask_downscaling.0."),
    (r"tracker_model\.prompt_encoder\.mask_embed\.layer_norm1\.", "tracker.sam_prompt_encoder.mask_downscaling.1."),
    (r"tracker_model\.prompt_encoder\.mask_embed\.conv2\.", "tracker.sam_prompt_encoder.mask_downscaling.3."),
    (r"tracker_model\.prompt_encoder\.mask_embed\.layer_norm2\.", "tracker.sam_prompt_encoder.mask_downscaling.4."),
    (r"tracker_model\.prompt_encoder\.mask_embed\.conv3\.", "tracker.sam_prompt_encoder.mask_downscaling.6."),
    (r"tracker_model\.prompt_encoder\.", "tracker.sam_prompt_encoder."),
    (r"tracker_model\.mask_decoder\.upscale_conv1\.", "tracker.sam_mask_decoder.output_upscaling.0."),
    (r"tracker_model\.mask_decoder\.upscale_layer_norm\.", "tracker.sam_mask_decoder.output_upscaling.1."),
    (r"tracker_model\.mask_decoder\.upscale_conv2\.", "tracker.sam_mask_decoder.output_upscaling.3."),
    (r"tracker_model\.mask_decoder\.transformer\.layers\.(\d+)\.mlp\.proj_in\.",
     r"tracker.sam_mask_decoder.transformer.layers.\1.mlp.lin1."),
    (r"tracker_model\.mask_decoder\.transformer\.layers\.(\d+)\.mlp\.proj_out\.",
     r"tracker.sam_mask_decoder.transformer.layers.\1.mlp.lin2."),
    (r"tracker_model\.mask_decoder\.", "tracker.sam_mask_decoder."),
    (r"tracker_model\.", "tracker."),
]


def finish(name):
    """Inner parts that are called alike in many places."""
    if ".transformer.decoder." in name or "prompt_mlp" in name:
        name = re.sub(r"\.layer(\d)\.", lambda m: ".layers.%d." % (int(m.group(1)) - 1), name)
    name = re.sub(r"(convs\.0)\.scale_layers\.0\.", r"\1.dconv_2x2_0.", name)
    name = re.sub(r"(convs\.0)\.scale_layers\.2\.", r"\1.dconv_2x2_1.", name)
    name = re.sub(r"(convs\.1)\.scale_layers\.0\.", r"\1.dconv_2x2.", name)
    if "convs." in name:
        name = name.replace(".proj1.", ".conv_1x1.").replace(".proj2.", ".conv_3x3.")
    if name.startswith("detector."):
        if "attn.qkv" not in name:
            name = re.sub(r"\.Q_proj\.(weight|bias)$", r".in_proj_\1", name)
        if "geometry_encoder.encode." in name or "transformer.encoder." in name:
            name = name.replace(".cross_attn.", ".cross_attn_image.").replace(".layer_norm", ".norm")
        if "language_backbone" not in name and "vision_backbone" not in name:
            name = name.replace(".mlp.fc1.", ".linear1.").replace(".mlp.fc2.", ".linear2.")
            name = name.replace(".o_proj.", ".out_proj.")
    else:
        name = name.replace(".o_proj.", ".out_proj.").replace(".layer_norm", ".norm")
        if "mask_downsampler" in name:
            name = re.sub(r"\.layers\.(\d)\.conv\.", lambda m: ".encoder.%d." % (3 * int(m.group(1))), name)
            name = re.sub(r"\.layers\.(\d)\.norm\.", lambda m: ".encoder.%d." % (3 * int(m.group(1)) + 1), name)
            name = name.replace(".final_conv.", ".encoder.12.")
        if re.search(r"hypernetworks|iou_prediction|pred_obj_score|obj_ptr_proj", name):
            name = name.replace(".layers.0.", ".layers.1.").replace(".proj_in.", ".layers.0.")
            name = name.replace(".proj_out.", ".layers.2.")
    return name


def official(name):
    """Official name and which third of it ("" = all) a transformers tensor is."""
    third = re.search(r"\.([qkv])_proj\.", name)
    split = third and not name.startswith("tracker_model.")
    asked = re.sub(r"\.[qkv]_proj\.", ".Q_proj.", name) if split else name
    for pattern, replacement in RULES:
        m = re.match(pattern, asked)
        if m:
            return finish(m.expand(replacement) + asked[m.end():]), third.group(1) if split else ""
    raise KeyError(name)


def value_for(name, shape):
    """What the official formula weights say about the transformers tensor `name`; adds to OFFICIAL what it used."""
    target, third = official(name)
    if third:
        whole = use(target, (3 * shape[0], *shape[1:]))
        return whole.chunk(3, 0)["qkv".index(third)]
    if target.endswith("trunk.pos_embed"):
        return use(target, (1, shape[1] + 1, shape[2]))[:, 1:]
    if target.endswith("encoder.text_projection"):
        return use(target, shape[::-1]).T
    if target.endswith("point_embeddings"):
        return torch.cat([use("%s.%d.weight" % (target, i), (1, shape[1])) for i in range(shape[0])])
    return use(target, shape)


OFFICIAL = {}


def use(name, shape):
    OFFICIAL[name] = tuple(shape)
    return formula(name, tuple(shape))


class Sizes:
    """Sizes of the preset tiny, or of a model that only has every kind of tensor."""

    def __init__(self, mini):
        self.d, self.ffn, self.heads, self.vocabulary = (8, 16, 2, 50) if mini else (64, 128, 4, 49408)
        self.mlp, self.projection, self.patch = (24, 12, 2) if mini else (296, 512, 14)
        self.depth, self.text_layers, self.layers, self.memory_layers = (1, 1, 1, 1) if mini else (4, 2, 2, 4)
        self.pretrain, self.sam_mlp, self.iou_width, self.queries = (8, 16, 8, 5) if mini else (56, 2048, 256, 12)
        self.image, self.memory = (16, 4) if mini else (112, 16)


def config(s):
    from transformers import Sam3VideoConfig
    side = s.image // s.patch
    vision = dict(backbone_config=dict(model_type="sam3_vit_model", hidden_size=s.d, intermediate_size=s.mlp,
                                       num_hidden_layers=s.depth, num_attention_heads=s.heads, image_size=s.image,
                                       patch_size=s.patch, window_size=4, global_attn_indexes=[1, 3],
                                       pretrain_image_size=s.pretrain),
                  model_type="sam3_vision_model", fpn_hidden_size=s.d,
                  backbone_feature_sizes=[[4 * side] * 2, [2 * side] * 2, [side] * 2])
    layers = dict(hidden_size=s.d, num_attention_heads=s.heads, intermediate_size=s.ffn)
    detector = dict(
        model_type="sam3", vision_config=vision,
        text_config=dict(model_type="clip_text_model", hidden_size=s.d, intermediate_size=4 * s.d,
                         projection_dim=s.projection, num_hidden_layers=s.text_layers, num_attention_heads=s.heads,
                         max_position_embeddings=32, vocab_size=s.vocabulary, hidden_act="gelu"),
        geometry_encoder_config=dict(num_layers=1, **layers), detr_encoder_config=dict(num_layers=s.layers, **layers),
        detr_decoder_config=dict(num_layers=s.layers, num_queries=s.queries, **layers),
        mask_decoder_config=dict(hidden_size=s.d, num_attention_heads=s.heads))
    tracker = dict(
        model_type="sam3_tracker_video", vision_config=vision, image_size=s.image,
        prompt_encoder_config=dict(hidden_size=s.d, image_size=s.image, patch_size=s.patch),
        mask_decoder_config=dict(hidden_size=s.d, num_attention_heads=min(8, s.d // 4), mlp_dim=s.sam_mlp,
                                 iou_head_hidden_dim=s.iou_width),
        memory_attention_hidden_size=s.d, memory_attention_num_layers=s.memory_layers,
        memory_attention_feed_forward_hidden_size=s.ffn, memory_attention_rope_feat_sizes=[side, side],
        memory_encoder_hidden_size=s.d, memory_encoder_output_channels=s.memory, mask_downsampler_embed_dim=s.d,
        memory_fuser_embed_dim=s.d, memory_fuser_intermediate_dim=4 * s.d)
    return Sam3VideoConfig(detector_config=detector, tracker_config=tracker, low_res_mask_size=4 * side)


def build(sizes):
    from transformers import Sam3VideoModel
    model = Sam3VideoModel(config(sizes)).eval()
    with torch.no_grad():
        for name, tensor in model.state_dict().items():
            if tensor.is_floating_point():
                tensor.copy_(value_for(name, tuple(tensor.shape)))
    return model


class Check:
    def __init__(self, golden):
        self.golden, self.bad = golden, 0

    def __call__(self, name, got, like=None):
        want = self.golden[like or name].float()
        got = got.detach().float().reshape(want.shape)
        error, scale = (got - want).abs().max().item(), want.abs().max().item()
        good = error <= 2e-4 * max(scale, 1e-3)
        self.bad += not good
        verdict = "" if good else "DIFFERS"
        print("%-28s %-22s max |d| %.2e of %.2e %s" % (name, tuple(want.shape), error, scale, verdict))


def check_detector(model, golden, check):
    detector = model.detector_model
    with torch.inference_mode():
        vision = detector.get_vision_features(pixel_values=golden["input"])
        for i in range(3):
            check("neck.%d" % i, vision.fpn_hidden_states[i])
        for case, text, boxes in (("text", 0, None), ("text_box", 1, [[0.4, 0.5, 0.3, 0.4]]), ("long_text", 4, None)):
            tokens = golden["text.%d.tokens" % text]
            mask = (tokens != 0).long()
            if text == 0:
                features = detector.get_text_features(input_ids=tokens, attention_mask=mask).pooler_output
                seen = mask.bool()
                want = golden["text.0.resized"].transpose(0, 1)
                check.golden["text.resized"] = want[seen]
                check("text.resized", features[seen])
            # Without boxes the official code still adds the geometry encoder's own token; a masked box does the same.
            given = torch.tensor([boxes or [[0.5, 0.5, 0.1, 0.1]]])
            labels = torch.full(given.shape[:2], 1 if boxes else -10)
            out = detector(vision_embeds=vision, input_ids=tokens, attention_mask=mask, input_boxes=given,
                           input_boxes_labels=labels)
            prefix = "case.%s." % case
            check(prefix + "logits", out.pred_logits)
            cx, cy, w, h = golden[prefix + "boxes"].unbind(-1)
            check.golden[prefix + "xyxy"] = torch.stack([cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2], -1)
            check(prefix + "xyxy", out.pred_boxes)
            check(prefix + "presence", out.presence_logits)
            check(prefix + "masks", out.pred_masks)
            check(prefix + "semantic", out.semantic_seg)


def check_clicks(folder, golden, check):
    """The interactive heads, in the model class that runs them on one picture."""
    from transformers import Sam3TrackerModel
    model = Sam3TrackerModel.from_pretrained(folder).eval()
    width, height = 150, 110
    px, py = width * 0.4, height * 0.5

    def points(*xy):
        return torch.tensor([[[[x * IMAGE / width, y * IMAGE / height] for x, y in xy]]])
    with torch.inference_mode():
        # transformers 5.24 adds this embedding to a level that is not used afterwards; the official code to the last.
        image = model.get_image_embeddings(golden["input"])
        image[-1] = golden["tracker_neck.2"] + model.no_memory_embedding.reshape(1, -1, 1, 1)
        cases = {
            "point": (dict(input_points=points((px, py)), input_labels=torch.tensor([[[1]]])), True),
            "points": (dict(input_points=points((px, py), (10, 12), (px + 9, py - 7)),
                            input_labels=torch.tensor([[[1, 0, 1]]])), False),
            "box": (dict(input_boxes=points((20, 15), (90, 80)).reshape(1, 1, 4)), False),
        }
        for name, (prompt, many) in cases.items():
            out = model(image_embeddings=image, multimask_output=many, **prompt)
            check("click.%s.iou" % name, out.iou_scores)
            check("click.%s.low_res" % name, out.pred_masks)


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--golden")
    ap.add_argument("--mini", action="store_true")
    a = ap.parse_args()
    torch.set_num_threads(1)
    model = build(Sizes(a.mini))
    os.makedirs(a.out, exist_ok=True)
    model.config.save_pretrained(a.out)
    dtype = torch.bfloat16 if a.mini else torch.float32
    save_file({k: v.to(dtype).contiguous() for k, v in model.state_dict().items()},
              os.path.join(a.out, "model.safetensors"))
    print("%d tensors, %d official ones" % (len(model.state_dict()), len(OFFICIAL)))
    if a.mini:
        with open(os.path.join(a.out, "official.txt"), "w") as f:
            for name, shape in sorted(OFFICIAL.items()):
                print(name, *shape, file=f)
    if a.golden:
        golden = load_file(a.golden)
        check = Check(golden)
        check_detector(model, golden, check)
        check_clicks(a.out, golden, check)
        sys.exit(check.bad != 0)


if __name__ == "__main__":
    main()
