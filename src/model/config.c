/* config.c - the three sizes that the reference knows, and that of the model which is trained from nothing. */
#include "model/config.h"

#include <string.h>

static const struct { const char *name; config c; int global[4]; } presets[] = {
    {"full", {.image = 1008, .pretrain = 336, .patch = 14, .vit_dim = 1024, .vit_depth = 32, .vit_heads = 16,
              .vit_mlp = 4736, .vit_window = 24, .text_dim = 1024, .text_heads = 16, .text_layers = 24, .context = 32,
              .vocabulary = 49408, .d = 256, .heads = 8, .ffn = 2048, .enc_layers = 6, .dec_layers = 6, .geo_layers = 3,
              .queries = 200, .mem_dim = 64, .text_projection = 512}, {7, 15, 23, 31}},
    {"small", {.image = 336, .pretrain = 112, .patch = 14, .vit_dim = 256, .vit_depth = 8, .vit_heads = 8,
               .vit_mlp = 1184, .vit_window = 8, .text_dim = 256, .text_heads = 8, .text_layers = 4, .context = 32,
               .vocabulary = 49408, .d = 256, .heads = 8, .ffn = 512, .enc_layers = 3, .dec_layers = 3, .geo_layers = 2,
               .queries = 50, .mem_dim = 64, .text_projection = 512}, {3, 7, 7, 7}},
    {"tiny", {.image = 112, .pretrain = 56, .patch = 14, .vit_dim = 64, .vit_depth = 4, .vit_heads = 4,
              .vit_mlp = 296, .vit_window = 4, .text_dim = 64, .text_heads = 4, .text_layers = 2, .context = 32,
              .vocabulary = 49408, .d = 64, .heads = 4, .ffn = 128, .enc_layers = 2, .dec_layers = 2, .geo_layers = 1,
              .queries = 12, .mem_dim = 16, .text_projection = 512}, {1, 3, 3, 3}},
    {"demo", {.image = 168, .pretrain = 168, .patch = 14, .vit_dim = 192, .vit_depth = 6, .vit_heads = 6,
              .vit_mlp = 768, .vit_window = 6, .text_dim = 128, .text_heads = 4, .text_layers = 2, .context = 8,
              .vocabulary = 49408, .d = 128, .heads = 4, .ffn = 512, .enc_layers = 3, .dec_layers = 3, .geo_layers = 1,
              .queries = 30, .mem_dim = 16, .text_projection = 8}, {2, 5, 5, 5}},
};

bool config_preset(config *c, const char *name)
{
    for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
        if (strcmp(presets[i].name, name) != 0)
            continue;
        *c = presets[i].c;
        for (int g = 0; g < 4; g++)
            c->vit_global[presets[i].global[g]] = true;
        return true;
    }
    return false;
}

int config_tokens(const config *c)
{
    return c->image / c->patch;
}

bool config_side_valid(const config *c, int side)
{
    int step = c->patch * c->vit_window;
    return side >= step && side % step == 0 && side / step <= 64;
}
