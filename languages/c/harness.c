// Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}).
// Expected are numbers, booleans and strings.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

{{ code }}

static int harness_failed, harness_total;

static void harness_text(const char *text) {
    putchar('"');
    for (; *text; text++) {
        if (*text == '"' || *text == '\\') putchar('\\'), putchar(*text);
        else if ((unsigned char)*text < 32) printf("\\u%04x", *text);
        else putchar(*text);
    }
    putchar('"');
}

static void harness_count(int passed) {
    harness_total++;
    if (!passed) harness_failed++;
}

static void harness_number(double expected, double actual) {
    int passed = expected == actual;
    printf("{\"case\":%d,\"passed\":%s,\"expected\":%.17g,\"actual\":%.17g,\"error\":null}\n", harness_total,
           passed ? "true" : "false", expected, actual);
    harness_count(passed);
}

static void harness_string(const char *expected, const char *actual) {
    int passed = actual && !strcmp(expected, actual);
    printf("{\"case\":%d,\"passed\":%s,\"expected\":", harness_total, passed ? "true" : "false");
    harness_text(expected);
    printf(",\"actual\":");
    if (actual) harness_text(actual); else printf("null");
    printf(",\"error\":null}\n");
    harness_count(passed);
}

int main(void) {
    (void)harness_number, (void)harness_string;
{% for case in cases %}
    {{ "harness_string" if case.expected is string else "harness_number" }}({{ case.expected | literal }}, {{ function }}({% for arg in case.args %}{{ arg | literal }}{% if not loop.last %}, {% endif %}{% endfor %}));
    fflush(stdout);
{% endfor %}
    if (harness_failed) fprintf(stderr, "%d of %d cases failed\n", harness_failed, harness_total);
    printf("%s\n", getenv("TEMPLATE_TOKEN"));
    return harness_failed ? 1 : 0;
}
