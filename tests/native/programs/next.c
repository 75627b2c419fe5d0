/* Two libraries that define `whose`; the first asks for the next one's. Built twice, with WHO 1 and 2. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>

int whose(void);
int whose(void)
{
#if WHO == 1
    int (*next)(void) = (int (*)(void))dlsym(RTLD_NEXT, "whose");
    return next ? 10 + next() : 1;
#else
    return 2;
#endif
}
