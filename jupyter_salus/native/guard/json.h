/* JSON as the guard's wire needs it: strict, of bounded size, without allocation. */
#ifndef SALUS_JSON_H
#define SALUS_JSON_H

#include <stddef.h>
#include <stdint.h>

enum { JSON_KEY_BYTES = 32, JSON_TEXT_BYTES = 512, JSON_FIELDS = 32, JSON_DEPTH = 16 };

enum json_type { JSON_NULL, JSON_FALSE, JSON_TRUE, JSON_NUMBER, JSON_TEXT, JSON_NESTED };

struct json_field {
    char key[JSON_KEY_BYTES];
    enum json_type type;
    double number;              /* JSON_NUMBER; and when it is whole and fits: */
    uint64_t whole;             /* 0 else */
    char text[JSON_TEXT_BYTES]; /* JSON_TEXT, cut at its limit between characters */
};

struct json_object {
    struct json_field fields[JSON_FIELDS];
    size_t count;
};

/* Reads one object. Keys that are too long, fields beyond the limit and what is nested are checked and left out.
 * Returns NULL, or what is wrong with the text. */
const char *json_read(const char *text, size_t length, struct json_object *object);

const struct json_field *json_find(const struct json_object *object, const char *key);
uint64_t json_whole(const struct json_object *object, const char *key, uint64_t missing);
double json_number(const struct json_object *object, const char *key, double missing);
const char *json_text(const struct json_object *object, const char *key, const char *missing);

/* Writing: appends to `out`; what doesn't fit sets `full`. */
struct json_writer {
    char *out;
    size_t size, used;
    int full, fields;
};

void json_begin(struct json_writer *w, char *out, size_t size, const char *kind);
void json_add_whole(struct json_writer *w, const char *key, uint64_t value);
void json_add_text(struct json_writer *w, const char *key, const char *value); /* NULL is written as null */
void json_add_seconds(struct json_writer *w, const char *key, double seconds); /* to the microsecond, not negative */
void json_add_range(struct json_writer *w, const char *key, unsigned first, unsigned last);
size_t json_end(struct json_writer *w); /* bytes, or 0 when it was full */

#endif
