// A chained hash table counting the words of standard input, with resizing and manual memory.
#include <ctype.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct entry {
    struct entry *next;
    int count;
    char word[];
};

struct table {
    struct entry **buckets;
    size_t capacity, used;
};

static uint32_t fnv1a(const char *s) {
    uint32_t hash = 2166136261u;
    for (; *s; s++) hash = (hash ^ (unsigned char)*s) * 16777619u;
    return hash;
}

static void grow(struct table *t) {
    size_t capacity = t->capacity ? 2 * t->capacity : 4;
    struct entry **buckets = calloc(capacity, sizeof *buckets);
    if (!buckets) abort();
    for (size_t i = 0; i < t->capacity; i++)
        for (struct entry *e = t->buckets[i], *next; e; e = next) {
            struct entry **slot = &buckets[fnv1a(e->word) % capacity];
            next = e->next;
            e->next = *slot;
            *slot = e;
        }
    free(t->buckets);
    t->buckets = buckets;
    t->capacity = capacity;
}

static struct entry *lookup(struct table *t, const char *word) {
    if (t->used >= t->capacity) grow(t);
    struct entry **slot = &t->buckets[fnv1a(word) % t->capacity];
    for (struct entry *e = *slot; e; e = e->next)
        if (strcmp(e->word, word) == 0) return e;
    struct entry *e = calloc(1, sizeof *e + strlen(word) + 1);
    if (!e) abort();
    strcpy(e->word, word);
    e->next = *slot;
    t->used++;
    return *slot = e;
}

static int by_count_then_word(const void *a, const void *b) {
    const struct entry *x = *(struct entry *const *)a, *y = *(struct entry *const *)b;
    return x->count != y->count ? y->count - x->count : strcmp(x->word, y->word);
}

int main(void) {
    struct table table = {0};
    char word[64];
    int total = 0;
    while (scanf("%*[^A-Za-z]"), scanf("%63[A-Za-z]", word) == 1) {
        for (char *p = word; *p; p++) *p = (char)tolower((unsigned char)*p);
        lookup(&table, word)->count++;
        total++;
    }
    struct entry **all = calloc(table.used, sizeof *all), **end = all;
    for (size_t i = 0; i < table.capacity; i++)
        for (struct entry *e = table.buckets[i]; e; e = e->next) *end++ = e;
    qsort(all, table.used, sizeof *all, by_count_then_word);
    printf("%d words, %zu distinct, fnv1a(foobar) = %08x\n", total, table.used, fnv1a("foobar"));
    for (int i = 0; i < 5; i++) printf("%-6s %d\n", all[i]->word, all[i]->count);
    for (size_t i = 0; i < table.used; i++) free(all[i]);
    free(all);
    free(table.buckets);
    return 0;
}
