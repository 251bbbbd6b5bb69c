/* hf_names.c - the correspondence between transformers' names of SAM 3 tensors and the official ones. */
#include "formats/hf_names.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* A beginning of a name and what takes its place; the rest of the name stays. In `from`, # stands for a number and @
 * for q, k or v; in `to`, # is the next number of `from` and < that number less one. The first match counts. */
typedef struct rule {
    const char *from, *to;
} rule;

#define TRUNK "backbone.vision_backbone.trunk."
#define TEXT "backbone.language_backbone.encoder."
#define NECK_RULES(FROM, TO)                                \
    {FROM "0.scale_layers.0.", TO "0.dconv_2x2_0."},        \
    {FROM "0.scale_layers.2.", TO "0.dconv_2x2_1."},        \
    {FROM "1.scale_layers.0.", TO "1.dconv_2x2."},          \
    {FROM "#.proj1.", TO "#.conv_1x1."},                    \
    {FROM "#.proj2.", TO "#.conv_3x3."}
#define ATTENTION_RULES(FROM, TO)                           \
    {FROM ".@_proj.", TO ".in_proj_"},                      \
    {FROM ".o_proj.", TO ".out_proj."}
#define LAYER_RULES(FROM, TO)                               \
    ATTENTION_RULES(FROM "#.self_attn", TO "#.self_attn"),  \
    ATTENTION_RULES(FROM "#.cross_attn", TO "#.cross_attn_image"), \
    {FROM "#.layer_norm#.", TO "#.norm#."},                 \
    {FROM "#.mlp.fc#.", TO "#.linear#."}
#define HEAD_RULES(FROM, TO)                                \
    {FROM "proj_in.", TO "layers.0."},                      \
    {FROM "layers.0.", TO "layers.1."},                     \
    {FROM "proj_out.", TO "layers.2."}

static const rule detector_rules[] = {
    {"vision_encoder.backbone.embeddings.position_embeddings", TRUNK "pos_embed"},
    {"vision_encoder.backbone.embeddings.patch_embeddings.projection.", TRUNK "patch_embed.proj."},
    {"vision_encoder.backbone.layer_norm.", TRUNK "ln_pre."},
    {"vision_encoder.backbone.layers.#.layer_norm#.", TRUNK "blocks.#.norm#."},
    {"vision_encoder.backbone.layers.#.attention.@_proj.", TRUNK "blocks.#.attn.qkv."},
    {"vision_encoder.backbone.layers.#.attention.o_proj.", TRUNK "blocks.#.attn.proj."},
    {"vision_encoder.backbone.layers.", TRUNK "blocks."},
    NECK_RULES("vision_encoder.neck.fpn_layers.", "backbone.vision_backbone.convs."),
    NECK_RULES("tracker_neck.fpn_layers.", "backbone.vision_backbone.sam2_convs."),
    {"text_encoder.embeddings.token_embedding.", TEXT "token_embedding."},
    {"text_encoder.embeddings.position_embedding.weight", TEXT "positional_embedding"},
    {"text_encoder.final_layer_norm.", TEXT "ln_final."},
    {"text_encoder.text_projection.weight", TEXT "text_projection"},
    {"text_encoder.encoder.layers.#.self_attn.@_proj.", TEXT "transformer.resblocks.#.attn.in_proj_"},
    {"text_encoder.encoder.layers.#.self_attn.", TEXT "transformer.resblocks.#.attn."},
    {"text_encoder.encoder.layers.#.layer_norm#.", TEXT "transformer.resblocks.#.ln_#."},
    {"text_encoder.encoder.layers.#.mlp.fc1.", TEXT "transformer.resblocks.#.mlp.c_fc."},
    {"text_encoder.encoder.layers.#.mlp.fc2.", TEXT "transformer.resblocks.#.mlp.c_proj."},
    {"text_projection.", "backbone.language_backbone.resizer."},
    LAYER_RULES("geometry_encoder.layers.", "geometry_encoder.encode."),
    {"geometry_encoder.vision_layer_norm.", "geometry_encoder.img_pre_norm."},
    {"geometry_encoder.prompt_layer_norm.", "geometry_encoder.norm."},
    {"geometry_encoder.output_layer_norm.", "geometry_encoder.encode_norm."},
    LAYER_RULES("detr_encoder.layers.", "transformer.encoder.layers."),
    ATTENTION_RULES("detr_decoder.layers.#.self_attn", "transformer.decoder.layers.#.self_attn"),
    ATTENTION_RULES("detr_decoder.layers.#.text_cross_attn", "transformer.decoder.layers.#.ca_text"),
    ATTENTION_RULES("detr_decoder.layers.#.vision_cross_attn", "transformer.decoder.layers.#.cross_attn"),
    {"detr_decoder.layers.#.vision_cross_attn_layer_norm.", "transformer.decoder.layers.#.norm1."},
    {"detr_decoder.layers.#.text_cross_attn_layer_norm.", "transformer.decoder.layers.#.catext_norm."},
    {"detr_decoder.layers.#.self_attn_layer_norm.", "transformer.decoder.layers.#.norm2."},
    {"detr_decoder.layers.#.mlp_layer_norm.", "transformer.decoder.layers.#.norm3."},
    {"detr_decoder.layers.#.mlp.fc#.", "transformer.decoder.layers.#.linear#."},
    {"detr_decoder.presence_head.layer#.", "transformer.decoder.presence_token_head.layers.<."},
    {"detr_decoder.presence_layer_norm.", "transformer.decoder.presence_token_out_norm."},
    {"detr_decoder.output_layer_norm.", "transformer.decoder.norm."},
    {"detr_decoder.box_head.layer#.", "transformer.decoder.bbox_embed.layers.<."},
    {"detr_decoder.box_rpb_embed_x.layer#.", "transformer.decoder.boxRPB_embed_x.layers.<."},
    {"detr_decoder.box_rpb_embed_y.layer#.", "transformer.decoder.boxRPB_embed_y.layers.<."},
    {"detr_decoder.ref_point_head.layer#.", "transformer.decoder.ref_point_head.layers.<."},
    {"detr_decoder.", "transformer.decoder."},
    {"dot_product_scoring.text_mlp.layer#.", "dot_prod_scoring.prompt_mlp.layers.<."},
    {"dot_product_scoring.text_mlp_out_norm.", "dot_prod_scoring.prompt_mlp.out_norm."},
    {"dot_product_scoring.text_proj.", "dot_prod_scoring.prompt_proj."},
    {"dot_product_scoring.query_proj.", "dot_prod_scoring.hs_proj."},
    {"mask_decoder.mask_embedder.", "segmentation_head.mask_predictor.mask_embed."},
    {"mask_decoder.instance_projection.", "segmentation_head.instance_seg_head."},
    {"mask_decoder.semantic_projection.", "segmentation_head.semantic_seg_head."},
    ATTENTION_RULES("mask_decoder.prompt_cross_attn", "segmentation_head.cross_attend_prompt"),
    {"mask_decoder.prompt_cross_attn_norm.", "segmentation_head.cross_attn_norm."},
    {"mask_decoder.", "segmentation_head."},
    {NULL, NULL},
};

static const rule tracker_rules[] = {
    {"memory_temporal_positional_encoding", "maskmem_tpos_enc"},
    {"no_memory_embedding", "no_mem_embed"},
    {"no_memory_positional_encoding", "no_mem_pos_enc"},
    {"no_object_pointer", "no_obj_ptr"},
    {"occlusion_spatial_embedding_parameter", "no_obj_embed_spatial"},
    {"temporal_positional_encoding_projection_layer.", "obj_ptr_tpos_proj."},
    HEAD_RULES("object_pointer_proj.", "obj_ptr_proj."),
    {"memory_attention.layers.#.self_attn.o_proj.", "transformer.encoder.layers.#.self_attn.out_proj."},
    {"memory_attention.layers.#.cross_attn_image.o_proj.", "transformer.encoder.layers.#.cross_attn_image.out_proj."},
    {"memory_attention.layers.#.layer_norm#.", "transformer.encoder.layers.#.norm#."},
    {"memory_attention.layer_norm.", "transformer.encoder.norm."},
    {"memory_attention.", "transformer.encoder."},
    {"memory_encoder.mask_downsampler.layers.0.conv.", "maskmem_backbone.mask_downsampler.encoder.0."},
    {"memory_encoder.mask_downsampler.layers.0.layer_norm.", "maskmem_backbone.mask_downsampler.encoder.1."},
    {"memory_encoder.mask_downsampler.layers.1.conv.", "maskmem_backbone.mask_downsampler.encoder.3."},
    {"memory_encoder.mask_downsampler.layers.1.layer_norm.", "maskmem_backbone.mask_downsampler.encoder.4."},
    {"memory_encoder.mask_downsampler.layers.2.conv.", "maskmem_backbone.mask_downsampler.encoder.6."},
    {"memory_encoder.mask_downsampler.layers.2.layer_norm.", "maskmem_backbone.mask_downsampler.encoder.7."},
    {"memory_encoder.mask_downsampler.layers.3.conv.", "maskmem_backbone.mask_downsampler.encoder.9."},
    {"memory_encoder.mask_downsampler.layers.3.layer_norm.", "maskmem_backbone.mask_downsampler.encoder.10."},
    {"memory_encoder.mask_downsampler.final_conv.", "maskmem_backbone.mask_downsampler.encoder.12."},
    {"memory_encoder.memory_fuser.layers.#.scale", "maskmem_backbone.fuser.layers.#.gamma"},
    {"memory_encoder.memory_fuser.layers.#.depthwise_conv.", "maskmem_backbone.fuser.layers.#.dwconv."},
    {"memory_encoder.memory_fuser.layers.#.layer_norm.", "maskmem_backbone.fuser.layers.#.norm."},
    {"memory_encoder.memory_fuser.layers.#.pointwise_conv", "maskmem_backbone.fuser.layers.#.pwconv"},
    {"memory_encoder.feature_projection.", "maskmem_backbone.pix_feat_proj."},
    {"memory_encoder.projection.", "maskmem_backbone.out_proj."},
    {"prompt_encoder.shared_embedding.positional_embedding",
     "sam_prompt_encoder.pe_layer.positional_encoding_gaussian_matrix"},
    {"prompt_encoder.point_embed.weight", "sam_prompt_encoder.point_embeddings"},
    {"prompt_encoder.mask_embed.conv1.", "sam_prompt_encoder.mask_downscaling.0."},
    {"prompt_encoder.mask_embed.layer_norm1.", "sam_prompt_encoder.mask_downscaling.1."},
    {"prompt_encoder.mask_embed.conv2.", "sam_prompt_encoder.mask_downscaling.3."},
    {"prompt_encoder.mask_embed.layer_norm2.", "sam_prompt_encoder.mask_downscaling.4."},
    {"prompt_encoder.mask_embed.conv3.", "sam_prompt_encoder.mask_downscaling.6."},
    {"prompt_encoder.", "sam_prompt_encoder."},
    {"mask_decoder.transformer.layers.#.self_attn.o_proj.",
     "sam_mask_decoder.transformer.layers.#.self_attn.out_proj."},
    {"mask_decoder.transformer.layers.#.cross_attn_token_to_image.o_proj.",
     "sam_mask_decoder.transformer.layers.#.cross_attn_token_to_image.out_proj."},
    {"mask_decoder.transformer.layers.#.cross_attn_image_to_token.o_proj.",
     "sam_mask_decoder.transformer.layers.#.cross_attn_image_to_token.out_proj."},
    {"mask_decoder.transformer.layers.#.layer_norm#.", "sam_mask_decoder.transformer.layers.#.norm#."},
    {"mask_decoder.transformer.layers.#.mlp.proj_in.", "sam_mask_decoder.transformer.layers.#.mlp.lin1."},
    {"mask_decoder.transformer.layers.#.mlp.proj_out.", "sam_mask_decoder.transformer.layers.#.mlp.lin2."},
    {"mask_decoder.transformer.final_attn_token_to_image.o_proj.",
     "sam_mask_decoder.transformer.final_attn_token_to_image.out_proj."},
    {"mask_decoder.transformer.layer_norm_final_attn.", "sam_mask_decoder.transformer.norm_final_attn."},
    {"mask_decoder.upscale_conv1.", "sam_mask_decoder.output_upscaling.0."},
    {"mask_decoder.upscale_layer_norm.", "sam_mask_decoder.output_upscaling.1."},
    {"mask_decoder.upscale_conv2.", "sam_mask_decoder.output_upscaling.3."},
    HEAD_RULES("mask_decoder.output_hypernetworks_mlps.#.", "sam_mask_decoder.output_hypernetworks_mlps.#."),
    HEAD_RULES("mask_decoder.iou_prediction_head.", "sam_mask_decoder.iou_prediction_head."),
    HEAD_RULES("mask_decoder.pred_obj_score_head.", "sam_mask_decoder.pred_obj_score_head."),
    {"mask_decoder.", "sam_mask_decoder."},
    {NULL, NULL},
};

#define NUMBERS 4

typedef struct match {
    const char *rest;               /* of the name, behind what matched */
    unsigned long number[NUMBERS];
    int piece;                      /* 0 to 2 for q, k, v; -1: none */
} match;

static bool matches(match *m, const char *from, const char *name)
{
    int numbers = 0;
    m->piece = -1;
    for (; *from; from++) {
        if (*from == '#') {
            char *end;
            if (!isdigit((unsigned char)*name) || numbers == NUMBERS)
                return false;
            m->number[numbers++] = strtoul(name, &end, 10);
            name = end;
        } else if (*from == '@') {
            const char *letter = *name ? strchr("qkv", *name) : NULL;
            if (!letter)
                return false;
            m->piece = (int)(letter - "qkv");
            name++;
        } else if (*from != *name++) {
            return false;
        }
    }
    m->rest = name;
    return true;
}

/* Official name for a transformers name, into *out, and which piece of that tensor it is. A name that no rule knows
 * keeps its end: it will not be asked for. */
static void translate(text *out, int *piece, const char *name)
{
    static const char *const wrappers[] = {"module.", "model."};
    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++)
        if (starts_with(name, wrappers[i]))
            name += strlen(wrappers[i]);
    bool tracker = starts_with(name, "tracker_model.");
    while (starts_with(name, "tracker_model."))
        name += strlen("tracker_model.");
    if (starts_with(name, "detector_model."))
        name += strlen("detector_model.");
    text plain = {0};
    if (starts_with(name, "text_encoder.text_model.")) {
        text_printf(&plain, "text_encoder.%s", name + strlen("text_encoder.text_model."));
        name = plain.failed ? name : plain.data;
    }
    match m = {.rest = name, .piece = -1};
    const rule *r = tracker ? tracker_rules : detector_rules;
    while (r->from && !matches(&m, r->from, name))
        r++;
    text_printf(out, "%s", tracker ? "tracker." : "detector.");
    int numbers = 0;
    for (const char *c = r->to ? r->to : ""; *c; c++) {
        if (*c == '#' || *c == '<')
            text_printf(out, "%lu", m.number[numbers++] - (*c == '<'));
        else
            text_add(out, c, 1);
    }
    text_printf(out, "%s", r->from ? m.rest : name);
    *piece = r->from ? m.piece : -1;
    text_free(&plain);
}

bool hf_detect(const tensor_list *found)
{
    bool backbone = false, neck = false;
    for (size_t i = 0; i < found->count && !(backbone && neck); i++) {
        backbone |= strstr(found->items[i].name, "vision_encoder.backbone.layers.") != NULL;
        neck |= strstr(found->items[i].name, "neck.fpn_layers.") != NULL;
    }
    return backbone && neck;
}

/* One third of a tensor: it joins the thirds that came before it. A third that has not come yet has data == NULL. */
static int add_third(tensor_list *out, name_map *open, const weight *w, int piece, samite_error *err)
{
    int64_t at = name_map_get(open, w->name);
    int code = SAMITE_OK;
    if (at < 0) {
        weight thirds[3] = {{.name = ""}, {.name = ""}, {.name = ""}}, whole = *w;
        whole.data = NULL;
        whole.parts = 3;
        whole.part = thirds;
        at = (int64_t)out->count;
        code = tensor_list_add(out, &whole, err);
        if (!code && !name_map_put(open, out->items[at].name, at))
            code = fail(err, SAMITE_RESOURCE, "out of memory while naming tensors");
    }
    if (!code) {
        weight *third = (weight *)out->items[at].part + piece;
        *third = *w;
        third->name = "";
    }
    return code;
}

/* All thirds are there and of one kind; the whole gets its shape. */
static int finish_thirds(weight *w, const char *path, samite_error *err)
{
    const weight *q = &w->part[0];
    bool good = q->data && q->axes >= 1 && q->axes <= 2;
    int64_t rows = 0;
    for (int p = 0; good && p < 3; p++) {
        const weight *t = &w->part[p];
        good = t->data && t->type == q->type && t->axes == q->axes && (q->axes < 2 || t->dim[1] == q->dim[1]) &&
               !__builtin_add_overflow(rows, t->dim[0], &rows);
    }
    if (!good)
        return fail(err, SAMITE_INPUT, "%s: the q, k and v parts of \"%s\" are not all there or do not fit together",
                    path, w->name);
    w->axes = q->axes;
    w->dim[0] = rows;
    w->dim[1] = q->dim[1];
    weight_set_strides(w);
    return SAMITE_OK;
}

/* The official table starts with a row for a class token, which the model never reads. */
static int add_positions(tensor_list *out, const weight *w, samite_error *err)
{
    static const double zero;
    weight row = *w, parts[2], whole = *w;
    if (w->axes != 3 || w->dim[0] != 1)
        return tensor_list_add(out, w, err);
    row.name = "";
    row.dim[1] = 1;
    row.data = &zero;
    memset(row.stride, 0, sizeof row.stride);
    parts[0] = row;
    parts[1] = *w;
    parts[1].name = "";
    whole.data = NULL;
    whole.parts = 2;
    whole.part = parts;
    whole.dim[1]++;
    weight_set_strides(&whole);
    return tensor_list_add(out, &whole, err);
}

/* One table of rows becomes one tensor per row: NAME.0.weight, NAME.1.weight, ... */
static int add_rows(tensor_list *out, const weight *w, samite_error *err)
{
    int code = SAMITE_OK;
    for (int64_t i = 0; !code && w->axes == 2 && i < w->dim[0] && i < 64; i++) {
        text name = {0};
        text_printf(&name, "%s.%d.weight", w->name, (int)i);
        weight row = *w;
        row.name = name.data;
        row.dim[0] = 1;
        row.data = (const char *)w->data + (size_t)(i * w->stride[0]) * dtype_size(w->type);
        code = name.failed ? fail(err, SAMITE_RESOURCE, "out of memory while naming tensors")
                           : tensor_list_add(out, &row, err);
        text_free(&name);
    }
    return code;
}

static int add_translated(tensor_list *out, name_map *open, const weight *w, int piece, samite_error *err)
{
    if (piece >= 0)
        return add_third(out, open, w, piece, err);
    if (ends_with(w->name, "trunk.pos_embed"))
        return add_positions(out, w, err);
    if (ends_with(w->name, "sam_prompt_encoder.point_embeddings"))
        return add_rows(out, w, err);
    weight turned = *w;
    if (ends_with(w->name, "encoder.text_projection") && w->axes == 2)
        for (int a = 0; a < 2; a++) {
            turned.dim[a] = w->dim[1 - a];
            turned.stride[a] = w->stride[1 - a];
        }
    return tensor_list_add(out, &turned, err);
}

int hf_translate(tensor_list *out, const tensor_list *found, const char *path, samite_error *err)
{
    name_map *open = name_map_new(found->count);
    int code = open ? SAMITE_OK : fail(err, SAMITE_RESOURCE, "%s: out of memory", path);
    for (size_t i = 0; !code && i < found->count; i++) {
        text name = {0};
        int piece;
        translate(&name, &piece, found->items[i].name);
        weight w = found->items[i];
        w.name = name.data;
        code = name.failed ? fail(err, SAMITE_RESOURCE, "%s: out of memory", path)
                           : add_translated(out, open, &w, piece, err);
        text_free(&name);
    }
    for (size_t i = 0; !code && i < found->refused_count; i++) {
        text name = {0};
        int piece;
        translate(&name, &piece, found->refused[i].key);
        code = name.failed ? fail(err, SAMITE_RESOURCE, "%s: out of memory", path)
                           : tensor_list_refuse(out, name.data, found->refused[i].value, err);
        text_free(&name);
    }
    for (size_t i = 0; !code && i < out->count; i++)
        if (out->items[i].parts == 3)
            code = finish_thirds(&out->items[i], path, err);
    name_map_free(open);
    return code;
}
