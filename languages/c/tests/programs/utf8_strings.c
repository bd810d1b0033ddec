// Strings: UTF-8 decoding and encoding, validation, tokenising, reversing, case and number parsing.
#include <ctype.h>
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Decodes one code point and advances; gives -1 for an invalid sequence.
static int32_t decode(const char **text) {
    const unsigned char *s = (const unsigned char *)*text;
    int extra = s[0] < 0x80 ? 0 : s[0] >> 5 == 6 ? 1 : s[0] >> 4 == 14 ? 2 : s[0] >> 3 == 30 ? 3 : -1;
    static const int32_t smallest[] = {0, 0x80, 0x800, 0x10000};
    ++*text;
    if (extra < 0) return -1;
    int32_t code = extra == 0 ? s[0] : s[0] & (0x3f >> extra);
    for (int i = 1; i <= extra; i++, ++*text) {
        if (s[i] >> 6 != 2) return -1;
        code = code << 6 | (s[i] & 0x3f);
    }
    return code < smallest[extra] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? -1 : code;
}

static int encode(int32_t code, char *out) {
    int extra = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    static const int lead[] = {0, 0xc0, 0xe0, 0xf0};
    out[0] = (char)(lead[extra] | code >> 6 * extra);
    for (int i = 1; i <= extra; i++) out[i] = (char)(0x80 | (code >> 6 * (extra - i) & 0x3f));
    return extra + 1;
}

static void reverse(const char *text, char *out) {
    char *end = out + strlen(text);
    *end = '\0';
    while (*text) {
        char bytes[4];
        int size = encode(decode(&text), bytes);
        memcpy(end -= size, bytes, (size_t)size);
    }
}

int main(void) {
    const char *const samples[] = {"plain", "na\u00efve", "\u65e5\u672c\u8a9e", "\U0001F389", "bad\xff", "\xc0\xaf", "\xed\xa0\x80"};
    for (size_t i = 0; i < sizeof samples / sizeof *samples; i++) {
        int count = 0, invalid = 0;
        for (const char *at = samples[i]; *at; count++) invalid += decode(&at) < 0;
        char reversed[32] = "-";
        if (!invalid) reverse(samples[i], reversed);
        printf("%zu bytes, %d code points, %d invalid, %s\n", strlen(samples[i]), count, invalid, reversed);
    }

    char list[] = "alpha, beta;gamma ,, delta";
    for (char *save, *word = strtok_r(list, ",; ", &save); word; word = strtok_r(NULL, ",; ", &save)) {
        word[0] = (char)toupper((unsigned char)word[0]);
        printf("%s%s", word, *save ? "|" : "\n");
    }

    const char *const numbers[] = {"42", "0x2A", "-0755", "12abc", "99999999999999999999"};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char *end;
        errno = 0;
        long value = strtol(numbers[i], &end, 0);
        printf("%s: %ld%s%s\n", numbers[i], value, *end ? ", rest " : "", errno == ERANGE ? ", out of range" : end);
    }
    char small[8];
    int needed = snprintf(small, sizeof small, "%s-%05.1f", samples[0], 3.14159);
    printf("needs %d, kept \"%s\"\n", needed, small);
    return 0;
}
