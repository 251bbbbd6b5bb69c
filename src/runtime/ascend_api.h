/* ascend_api.h - the functions of the Ascend runtime (libascendcl) that are used, found at run time. */
#ifndef RUNTIME_ASCEND_API_H
#define RUNTIME_ASCEND_API_H

#include <stddef.h>
#include <stdint.h>

#include "base/error.h"

typedef struct acl_dims {
    char    name[128];
    size_t  count;
    int64_t dim[128];
} acl_dims;

/* name, result, arguments. */
#define ACL_FUNCTIONS(F) \
    F(aclInit, int, (const char *config)) \
    F(aclFinalize, int, (void)) \
    F(aclrtSetDevice, int, (int32_t device)) \
    F(aclrtResetDevice, int, (int32_t device)) \
    F(aclrtGetDeviceCount, int, (uint32_t *count)) \
    F(aclrtCreateContext, int, (void **context, int32_t device)) \
    F(aclrtDestroyContext, int, (void *context)) \
    F(aclrtSetCurrentContext, int, (void *context)) \
    F(aclrtMalloc, int, (void **at, size_t size, int policy)) \
    F(aclrtFree, int, (void *at)) \
    F(aclrtMemcpy, int, (void *to, size_t room, const void *from, size_t count, int kind)) \
    F(aclrtGetSocName, const char *, (void)) \
    F(aclGetRecentErrMsg, const char *, (void)) \
    F(aclmdlLoadFromFile, int, (const char *path, uint32_t *id)) \
    F(aclmdlUnload, int, (uint32_t id)) \
    F(aclmdlCreateDesc, void *, (void)) \
    F(aclmdlDestroyDesc, int, (void *desc)) \
    F(aclmdlGetDesc, int, (void *desc, uint32_t id)) \
    F(aclmdlGetNumInputs, size_t, (void *desc)) \
    F(aclmdlGetNumOutputs, size_t, (void *desc)) \
    F(aclmdlGetInputSizeByIndex, size_t, (void *desc, size_t i)) \
    F(aclmdlGetOutputSizeByIndex, size_t, (void *desc, size_t i)) \
    F(aclmdlGetInputNameByIndex, const char *, (const void *desc, size_t i)) \
    F(aclmdlGetOutputNameByIndex, const char *, (const void *desc, size_t i)) \
    F(aclmdlGetOutputDims, int, (const void *desc, size_t i, acl_dims *dims)) \
    F(aclmdlGetOutputDataType, int, (const void *desc, size_t i)) \
    F(aclmdlCreateDataset, void *, (void)) \
    F(aclmdlDestroyDataset, int, (const void *set)) \
    F(aclmdlAddDatasetBuffer, int, (void *set, void *buffer)) \
    F(aclmdlGetDatasetTensorDesc, void *, (const void *set, size_t i)) \
    F(aclCreateDataBuffer, void *, (void *data, size_t size)) \
    F(aclDestroyDataBuffer, int, (const void *buffer)) \
    F(aclGetDataBufferAddr, void *, (const void *buffer)) \
    F(aclGetTensorDescSize, size_t, (const void *desc)) \
    F(aclGetTensorDescNumDims, size_t, (const void *desc)) \
    F(aclGetTensorDescDimV2, int, (const void *desc, size_t i, int64_t *dim)) \
    F(aclmdlExecute, int, (uint32_t id, const void *in, void *out))

#define ACL_MEMBER(name, result, arguments) result (*name) arguments;
typedef struct acl_functions { ACL_FUNCTIONS(ACL_MEMBER) } acl_functions;

/* Fills the table from the library; names the first function that is missing. */
int acl_find(acl_functions *f, void *handle, const char *library, samite_error *err);
/* What a code of the runtime usually means, and what to do; never NULL. */
const char *acl_hint(int code);

enum { ACL_HUGE_FIRST = 0, ACL_TO_DEVICE = 1, ACL_TO_HOST = 2, ACL_REPEAT_INITIALIZE = 100002 };
enum { ACL_FLOAT = 0, ACL_FLOAT16 = 1, ACL_INT64 = 9 };

#endif
