// A recursive JSON parser that re-indents its input and reports where it goes wrong.
#include <ctype.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>

static const char *start, *at;
static jmp_buf failed;

static void fail(const char *why) {
    printf("\nerror at %td: %s\n", at - start, why);
    longjmp(failed, 1);
}

static char peek(void) {
    while (isspace((unsigned char)*at)) at++;
    return *at;
}

static void expect(char c) {
    if (peek() != c) fail("unexpected character");
    at++;
}

static void string(void) {
    expect('"');
    const char *from = at - 1;
    for (; *at != '"'; at++) {
        if (*at == '\\') at++;
        if (!*at) fail("unfinished string");
    }
    at++;
    printf("%.*s", (int)(at - from), from);
}

static void word(void) {
    double number;
    int used = 0, length = (int)strspn(at, "+-.0123456789eE");
    const char *const constants[] = {"true", "false", "null"};
    for (int i = 0; i < 3; i++)
        if (strncmp(at, constants[i], strlen(constants[i])) == 0) used = (int)strlen(constants[i]);
    if (!used && (sscanf(at, "%lf%n", &number, &used) != 1 || used != length)) fail("unknown word");
    printf("%.*s", used, at);
    at += used;
}

static void value(int depth) {
    char open = peek(), close = open == '{' ? '}' : ']';
    if (open == '"') {
        string();
    } else if (open != '{' && open != '[') {
        word();
    } else {
        putchar(*at++);
        for (int first = 1; peek() != close; first = 0) {
            if (!first) expect(',');
            printf("%s\n%*s", first ? "" : ",", 2 * depth + 2, "");
            if (open == '{') {
                string();
                expect(':');
                printf(": ");
            }
            value(depth + 1);
        }
        if (at[-1] != open) printf("\n%*s", 2 * depth, "");
        putchar(*at++);
    }
}

int main(void) {
    const char *const sources[] = {
        "{\"name\": \"Ada\",\"tags\":[\"a\\\"b\", -1.5e3],\n \"empty\": {}, \"on\": true}", "[1, [2, ?]]", "[\"open", "{\"a\" 1}"};
    for (volatile size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        start = at = sources[i];
        if (setjmp(failed)) continue;
        value(0);
        putchar('\n');
    }
    return 0;
}
