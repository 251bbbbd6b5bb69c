/* demo_model.h - the small model that comes with samite. */
#ifndef CLI_DEMO_MODEL_H
#define CLI_DEMO_MODEL_H

#include <stdbool.h>

/* What to say when it is used without being asked for. */
#define DEMO_MODEL_NOTICE "no model given, so the one that comes with samite is used: it knows 118 names of drawings, no " \
                          "photographs. For these get sam3.pt and use -m (docs/models.md)"

/* Where it lies: beside the program as installed or as built, else below the prefix that samite was built for. NULL: it
 * is not there. */
const char *demo_model_path(void);

#endif
