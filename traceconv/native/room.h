/* Arrays that grow. */

#ifndef TRACECONV_ROOM_H
#define TRACECONV_ROOM_H

#include <stdlib.h>
#include <string.h>

/* Make room for one more item; 0 if out of memory. `items` is the address of the pointer to the first item. */
static inline int room_for_one(void *items, size_t count, size_t *room, size_t size, size_t first)
{
    if (count < *room)
        return 1;
    void *grown;
    size_t more = *room ? *room * 2 : first;
    memcpy(&grown, items, sizeof grown);
    grown = realloc(grown, more * size);
    if (grown == NULL)
        return 0;
    memcpy(items, &grown, sizeof grown);
    *room = more;
    return 1;
}

#endif
