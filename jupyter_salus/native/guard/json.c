/* The reader and writer of json.h. Numbers are read and written by hand: the C library's follow the locale. */
#include "json.h"

#include <stdio.h>
#include <string.h>

struct reader {
    const unsigned char *at, *end;
    const char *wrong;
};

static int fail(struct reader *r, const char *why)
{
    if (!r->wrong)
        r->wrong = why;
    return 0;
}

static void skip_space(struct reader *r)
{
    while (r->at < r->end && (*r->at == ' ' || *r->at == '\t' || *r->at == '\n' || *r->at == '\r'))
        r->at++;
}

static int take(struct reader *r, char c)
{
    skip_space(r);
    if (r->at < r->end && *r->at == (unsigned char)c) {
        r->at++;
        return 1;
    }
    return 0;
}

static int read_hex4(struct reader *r, unsigned *value)
{
    *value = 0;
    for (int i = 0; i < 4; i++) {
        if (r->at >= r->end)
            return fail(r, "an escape is cut off");
        unsigned c = *r->at++;
        unsigned digit = c - '0' < 10u ? c - '0' : (c | 32) - 'a' < 6u ? (c | 32) - 'a' + 10 : 16;
        if (digit > 15)
            return fail(r, "an escape has a wrong digit");
        *value = *value * 16 + digit;
    }
    return 1;
}

static size_t utf8(unsigned c, char out[4])
{
    if (c < 0x80) {
        out[0] = (char)c;
        return 1;
    }
    size_t n = c < 0x800 ? 2 : c < 0x10000 ? 3 : 4;
    for (size_t i = n - 1; i > 0; i--, c >>= 6)
        out[i] = (char)(0x80 | (c & 0x3f));
    out[0] = (char)((n == 2 ? 0xc0 : n == 3 ? 0xe0 : 0xf0) | c);
    return n;
}

static int read_escape(struct reader *r, unsigned *c)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    if (r->at >= r->end)
        return fail(r, "an escape is cut off");
    unsigned char e = *r->at++;
    if (e != 'u') {
        const char *known = e ? strchr(from, e) : NULL;
        if (!known)
            return fail(r, "an escape isn't known");
        *c = (unsigned char)to[known - from];
        return 1;
    }
    if (!read_hex4(r, c))
        return 0;
    if (*c >= 0xd800 && *c < 0xdc00) {
        unsigned low;
        if (r->end - r->at < 2 || r->at[0] != '\\' || r->at[1] != 'u')
            return fail(r, "half a surrogate pair");
        r->at += 2;
        if (!read_hex4(r, &low))
            return 0;
        if (low < 0xdc00 || low > 0xdfff)
            return fail(r, "half a surrogate pair");
        *c = 0x10000 + ((*c - 0xd800) << 10) + (low - 0xdc00);
    } else if (*c >= 0xdc00 && *c < 0xe000)
        return fail(r, "half a surrogate pair");
    return 1;
}

/* How long the character at `at` is, or 0 if it isn't UTF-8. */
static size_t utf8_length(const unsigned char *at, const unsigned char *end)
{
    if (*at < 0x80)
        return 1;
    size_t n = *at >= 0xc2 && *at < 0xe0 ? 2 : *at >= 0xe0 && *at < 0xf0 ? 3 : *at >= 0xf0 && *at < 0xf5 ? 4 : 0;
    if (!n || (size_t)(end - at) < n)
        return 0;
    for (size_t i = 1; i < n; i++)
        if ((at[i] & 0xc0) != 0x80)
            return 0;
    unsigned second = at[1];
    if ((*at == 0xe0 && second < 0xa0) || (*at == 0xed && second > 0x9f) || (*at == 0xf0 && second < 0x90) ||
        (*at == 0xf4 && second > 0x8f))
        return 0;
    return n;
}

/* `whole` is set to 0 if the text was longer than `size` - 1 bytes: what fits is kept. */
static int read_text(struct reader *r, char *out, size_t size, int *whole)
{
    size_t used = 0;
    *whole = 1;
    if (!take(r, '"'))
        return fail(r, "a text is needed");
    while (r->at < r->end && *r->at != '"') {
        char character[4];
        size_t n;
        if (*r->at < 0x20)
            return fail(r, "a control character in a text");
        if (*r->at == '\\') {
            unsigned c;
            r->at++;
            if (!read_escape(r, &c))
                return 0;
            n = utf8(c, character);
        } else {
            n = utf8_length(r->at, r->end);
            if (!n)
                return fail(r, "a text isn't UTF-8");
            memcpy(character, r->at, n);
            r->at += n;
        }
        if (*whole && used + n < size) {
            memcpy(out + used, character, n);
            used += n;
        } else
            *whole = 0;
    }
    out[used] = 0;
    return take(r, '"') ? 1 : fail(r, "a text is cut off");
}

static int digit_at(const unsigned char *at) { return *at >= '0' && *at <= '9'; }

static int digits(struct reader *r) { return r->at < r->end && digit_at(r->at); }

static int read_number(struct reader *r, struct json_field *field)
{
    int negative = 0, whole = 1;
    double value = 0;
    uint64_t integer = 0;
    if (r->at < r->end && *r->at == '-') {
        negative = 1;
        r->at++;
    }
    if (!digits(r))
        return fail(r, "a value is needed");
    if (*r->at == '0' && r->at + 1 < r->end && digit_at(r->at + 1))
        return fail(r, "a number begins with 0");
    for (; digits(r); r->at++) {
        unsigned digit = (unsigned)(*r->at - '0');
        value = value * 10 + digit;
        whole = whole && integer <= (UINT64_MAX - digit) / 10;
        integer = whole ? integer * 10 + digit : 0;
    }
    if (r->at < r->end && *r->at == '.') {
        double scale = 0.1;
        r->at++;
        whole = 0;
        if (!digits(r))
            return fail(r, "a number ends with a point");
        for (; digits(r); r->at++, scale /= 10)
            value += scale * (*r->at - '0');
    }
    if (r->at < r->end && (*r->at | 32) == 'e') {
        int down = 0, exponent = 0;
        r->at++;
        whole = 0;
        if (r->at < r->end && (*r->at == '+' || *r->at == '-'))
            down = *r->at++ == '-';
        if (!digits(r))
            return fail(r, "a number has no exponent");
        for (; digits(r); r->at++)
            exponent = exponent < 1000 ? exponent * 10 + (*r->at - '0') : 1000;
        for (; exponent > 0 && value != 0 && value < 1e300; exponent--)
            value = down ? value / 10 : value * 10;
    }
    field->type = JSON_NUMBER;
    field->number = negative ? -value : value;
    field->whole = whole && !negative ? integer : 0;
    return 1;
}

static int read_word(struct reader *r, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(r->end - r->at) < n || memcmp(r->at, word, n) != 0)
        return fail(r, "a value is needed");
    r->at += n;
    return 1;
}

static int read_value(struct reader *r, struct json_field *field, int depth);

static int read_nested(struct reader *r, char close, int depth)
{
    struct json_field ignored;
    int whole;
    if (depth >= JSON_DEPTH)
        return fail(r, "nested too deep");
    r->at++;
    if (take(r, close))
        return 1;
    do {
        if (close == '}' && (!read_text(r, ignored.text, sizeof ignored.text, &whole) || !take(r, ':')))
            return fail(r, "a key and a colon are needed");
        if (!read_value(r, &ignored, depth + 1))
            return 0;
    } while (take(r, ','));
    return take(r, close) ? 1 : fail(r, "a list or object is cut off");
}

static int read_value(struct reader *r, struct json_field *field, int depth)
{
    int whole;
    field->number = 0;
    field->whole = 0;
    field->text[0] = 0;
    skip_space(r);
    if (r->at >= r->end)
        return fail(r, "a value is needed");
    switch (*r->at) {
    case '"':
        field->type = JSON_TEXT;
        return read_text(r, field->text, sizeof field->text, &whole);
    case '{':
        field->type = JSON_NESTED;
        return read_nested(r, '}', depth);
    case '[':
        field->type = JSON_NESTED;
        return read_nested(r, ']', depth);
    case 't':
        field->type = JSON_TRUE;
        return read_word(r, "true");
    case 'f':
        field->type = JSON_FALSE;
        return read_word(r, "false");
    case 'n':
        field->type = JSON_NULL;
        return read_word(r, "null");
    default:
        return read_number(r, field);
    }
}

const char *json_read(const char *text, size_t length, struct json_object *object)
{
    struct reader r = {.at = (const unsigned char *)text, .end = (const unsigned char *)text + length};
    struct json_field extra;
    object->count = 0;
    if (!take(&r, '{'))
        return "an object is needed";
    if (!take(&r, '}')) {
        do {
            int whole;
            struct json_field *field = object->count < JSON_FIELDS ? &object->fields[object->count] : &extra;
            if (!read_text(&r, field->key, sizeof field->key, &whole))
                return r.wrong;
            if (!take(&r, ':'))
                return "a colon is needed";
            if (!read_value(&r, field, 1))
                return r.wrong;
            if (whole && field != &extra) {
                if (json_find(object, field->key))
                    return "a key stands twice";
                object->count++;
            }
        } while (take(&r, ','));
        if (!take(&r, '}'))
            return "an object is cut off";
    }
    skip_space(&r);
    return r.at == r.end ? NULL : "something follows the object";
}

const struct json_field *json_find(const struct json_object *object, const char *key)
{
    for (size_t i = 0; i < object->count; i++)
        if (strcmp(object->fields[i].key, key) == 0)
            return &object->fields[i];
    return NULL;
}

uint64_t json_whole(const struct json_object *object, const char *key, uint64_t missing)
{
    const struct json_field *field = json_find(object, key);
    return field && field->type == JSON_NUMBER ? field->whole : missing;
}

double json_number(const struct json_object *object, const char *key, double missing)
{
    const struct json_field *field = json_find(object, key);
    return field && field->type == JSON_NUMBER ? field->number : missing;
}

const char *json_text(const struct json_object *object, const char *key, const char *missing)
{
    const struct json_field *field = json_find(object, key);
    return field && field->type == JSON_TEXT ? field->text : missing;
}

static void put(struct json_writer *w, const char *text, size_t n)
{
    if (w->full || w->size - w->used < n) {
        w->full = 1;
        return;
    }
    memcpy(w->out + w->used, text, n);
    w->used += n;
}

static void put_text(struct json_writer *w, const char *text)
{
    const unsigned char *at = (const unsigned char *)text, *end = at + strlen(text);
    put(w, "\"", 1);
    while (at < end) {
        char escape[8];
        size_t n = utf8_length(at, end);
        if (n && *at >= 0x20 && *at != '"' && *at != '\\') {
            put(w, (const char *)at, n);
            at += n;
            continue;
        }
        /* Bytes that aren't UTF-8 (a path may hold any) are shown by their number. */
        put(w, escape, (size_t)snprintf(escape, sizeof escape, "\\u%04x", *at));
        at++;
    }
    put(w, "\"", 1);
}

static void put_key(struct json_writer *w, const char *key)
{
    if (w->fields++)
        put(w, ",", 1);
    put_text(w, key);
    put(w, ":", 1);
}

void json_begin(struct json_writer *w, char *out, size_t size, const char *kind)
{
    *w = (struct json_writer){.out = out, .size = size};
    put(w, "{", 1);
    json_add_text(w, "kind", kind);
}

void json_add_whole(struct json_writer *w, const char *key, uint64_t value)
{
    char text[24];
    put_key(w, key);
    put(w, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)value));
}

void json_add_text(struct json_writer *w, const char *key, const char *value)
{
    put_key(w, key);
    if (value)
        put_text(w, value);
    else
        put(w, "null", 4);
}

void json_add_seconds(struct json_writer *w, const char *key, double seconds)
{
    char text[40];
    uint64_t micro = seconds > 0 && seconds < 1e12 ? (uint64_t)(seconds * 1e6 + 0.5) : 0;
    put_key(w, key);
    put(w, text,
        (size_t)snprintf(text, sizeof text, "%llu.%06u", (unsigned long long)(micro / 1000000),
                         (unsigned)(micro % 1000000)));
}

void json_add_range(struct json_writer *w, const char *key, unsigned first, unsigned last)
{
    char text[32];
    put_key(w, key);
    put(w, text, (size_t)snprintf(text, sizeof text, "[%u,%u]", first, last));
}

size_t json_end(struct json_writer *w)
{
    put(w, "}", 1);
    return w->full ? 0 : w->used;
}
