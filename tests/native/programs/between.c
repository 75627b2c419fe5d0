/* Another preloaded library that stands in front of dlsym, and passes on as such libraries do. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <string.h>

void *dlsym(void *handle, const char *name)
{
    static void *(*next)(void *, const char *);
    if (!next)
        next = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", "GLIBC_2.2.5");
    if (strcmp(name, "salus_between") == 0)
        return (void *)dlsym;
    return next(handle, name); /* at -O2 a jump: its caller stays the caller */
}
