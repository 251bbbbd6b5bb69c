/* ascend_api.c - finds the functions of the Ascend runtime, and says in words what its codes mean. */
#include "runtime/ascend_api.h"

#include <dlfcn.h>
#include <string.h>

int acl_find(acl_functions *f, void *handle, const char *library, samite_error *err)
{
#define ACL_PLACE(name, result, arguments) {#name, &f->name},
    const struct { const char *name; void *at; } table[] = {ACL_FUNCTIONS(ACL_PLACE)};
    for (size_t i = 0; i < sizeof table / sizeof *table; i++) {
        void *symbol = dlsym(handle, table[i].name);
        if (!symbol)
            return fail(err, SAMITE_INPUT,
                        "%s has no %s: it is no Ascend runtime of CANN 6 or newer, or only the stub for "
                        "linking from devlib",
                        library, table[i].name);
        memcpy(table[i].at, &symbol, sizeof symbol);
    }
    return 0;
}

const char *acl_hint(int code)
{
    static const struct { int from, to; const char *hint;
    } hints[] = {
        {100000, 100000, "an argument was refused"},
        {100001, 100001, "the runtime was not initialised"},
        {100003, 100003, "the .om file cannot be read: check the path, or convert it again"},
        {100011, 100011, "the model is not loaded"},
        {100012, 100016, "the .om file is damaged or was made by another CANN version: convert it again"},
        {100017, 100019, "inputs or outputs do not fit the model: is the .om of this export?"},
        {107000, 107000, "an argument was refused by the runtime"},
        {107001, 107001, "there is no such device: see npu-smi info; ASCEND_RT_VISIBLE_DEVICES renumbers devices"},
        {107002, 107002, "no device was set for this thread"},
        {145000, 145022, "the model file or its inputs were refused: convert it again with the script of this export"},
        {200000, 200000, "out of memory"},
        {200001, 200006, "this chip lacks the feature"},
        {207000, 207000, "this chip lacks the feature"},
        {207001, 207001, "the device is out of memory: unload other programs, or use a smaller input size"},
        {207004, 207004, "no device: check the driver with npu-smi info"},
        {207006, 207006,
         "no permission for /dev/davinci*: add the user to the group HwHiAiUser, or map the device into the "
         "container"},
        {245000, 245000, "the device is out of memory"},
        {507008, 507008, "the .om was made for another chip: convert it with the chip name that npu-smi info shows"},
        {507011, 507011, "the model failed while running: look into ~/ascend/log"},
        {507014, 507018,
         "a kernel failed or took too long: look into ~/ascend/log; is the kernels package of this chip "
         "installed?"},
        {507033, 507033, "the device could not be set up: is another program using it?"},
        {507899, 507900, "the driver failed: look into ~/ascend/log"},
        {545000, 545009, "the model could not be loaded: .om newer than the runtime, missing weight folder, or memory"},
        {545601, 545601, "the model took too long"},
        {500001, 500004, "look into ~/ascend/log"},
    };
    for (size_t i = 0; i < sizeof hints / sizeof *hints; i++)
        if (code >= hints[i].from && code <= hints[i].to)
            return hints[i].hint;
    return "look into ~/ascend/log";
}
