/* config.h - the sizes of a SAM 3 network. Names and meaning as in the reference's Config. */
#ifndef MODEL_CONFIG_H
#define MODEL_CONFIG_H

#include <stdbool.h>
#include <stdint.h>

#define MAX_TRUNK_DEPTH 64
#define MAX_KEPT_TOKENS 1024

typedef struct config {
    int image;                       /* input side in pixels: a multiple of patch * window */
    int pretrain;                    /* side that the absolute position table was made for */
    int patch;
    int vit_dim, vit_depth, vit_heads, vit_mlp;   /* vit_mlp: width of the hidden layer, int(vit_dim * ratio) */
    int vit_window;                  /* tokens per window side */
    bool vit_global[MAX_TRUNK_DEPTH];/* blocks that attend to the whole picture */
    int text_dim, text_heads, text_layers, context, vocabulary;
    int d, heads, ffn;               /* behind the backbones */
    int enc_layers, dec_layers, geo_layers, queries;
    int mem_dim;                     /* tracker memory width */
    int kept;                        /* 0, or the token table holds only `kept` = vocabulary tokens: */
    uint16_t kept_ids[MAX_KEPT_TOKENS];  /* their official ids, ascending; the network counts them from 0 */
    int text_projection;             /* columns of the text projection, which nothing uses */
    float nms;                       /* results that overlap a better one more are usually dropped; 0: none */
} config;

/* "tiny", "small", "full", "demo"; false for another name. */
bool config_preset(config *c, const char *name);
int  config_tokens(const config *c);              /* tokens per side */
/* Is `side` a multiple of patch * window, at least one window and at most 64 of them? */
bool config_side_valid(const config *c, int side);

#endif
