/* A machine under another name: gethostname() says FAKE_HOST. For LD_PRELOAD. */

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

int gethostname(char *name, size_t size);

int gethostname(char *name, size_t size)
{
    const char *fake = getenv("FAKE_HOST");
    if (fake == NULL || strlen(fake) >= size)
        return -1;
    memcpy(name, fake, strlen(fake) + 1);
    return 0;
}
