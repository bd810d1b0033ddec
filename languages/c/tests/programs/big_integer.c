// Big integers in base 10^9: factorials, powers and Fibonacci numbers.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { LIMBS = 64, BASE = 1000000000 };

// Least significant limb first; length counts the limbs in use.
struct big {
    int length;
    uint32_t limb[LIMBS];
};

static struct big from(uint32_t n) { return (struct big){.length = 1, .limb = {n}}; }

static void multiply(struct big *a, uint32_t factor) {
    uint64_t carry = 0;
    for (int i = 0; i < a->length || carry; i++) {
        uint64_t value = (uint64_t)(i < a->length ? a->limb[i] : 0) * factor + carry;
        a->limb[i] = (uint32_t)(value % BASE);
        carry = value / BASE;
        if (i == a->length) a->length++;
    }
}

static void add(struct big *a, const struct big *b) {
    uint32_t carry = 0;
    int longest = a->length > b->length ? a->length : b->length;
    for (int i = 0; i < longest || carry; i++) {
        uint32_t sum = carry;
        if (i < a->length) sum += a->limb[i];
        if (i < b->length) sum += b->limb[i];
        a->limb[i] = sum % BASE;
        carry = sum / BASE;
        if (i >= a->length) a->length = i + 1;
    }
}

static const char *text(const struct big *a, char *out) {
    char *end = out + sprintf(out, "%u", a->limb[a->length - 1]);
    for (int i = a->length - 2; i >= 0; i--) end += sprintf(end, "%09u", a->limb[i]);
    return out;
}

static int digit_sum(const char *digits) {
    int sum = 0;
    for (; *digits; digits++) sum += *digits - '0';
    return sum;
}

int main(void) {
    char digits[LIMBS * 9 + 1];
    struct big n = from(1), a = from(0), b = from(1);
    for (uint32_t i = 1; i <= 100; i++) {
        multiply(&n, i);
        if (i == 25) printf("25! = %s\n", text(&n, digits));
    }
    int sum = digit_sum(text(&n, digits));
    printf("digit sum of 100!: %d, %zu digits\n", sum, strlen(digits));
    n = from(1);
    for (int i = 0; i < 1000; i++) multiply(&n, 2);
    printf("digit sum of 2^1000: %d\n", digit_sum(text(&n, digits)));
    for (int i = 1; i <= 300; i++) {
        struct big next = a;
        add(&next, &b);
        a = b;
        b = next;
        if (i == 90 || i == 300) printf("fib(%d) = %s\n", i, text(&a, digits));
    }
    return 0;
}
