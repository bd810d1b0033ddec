// Sorting: quicksort, merge sort and heap sort against qsort, structs with comparators, bsearch.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 5000 };

static void swap(int *a, int *b) { int t = *a; *a = *b; *b = t; }

static void quick_sort(int *v, int n) {
    if (n < 2) return;
    int pivot = v[n / 2], i = 0, j = n - 1;
    for (;; i++, j--) {
        while (v[i] < pivot) i++;
        while (v[j] > pivot) j--;
        if (i >= j) break;
        swap(&v[i], &v[j]);
    }
    quick_sort(v, i);
    quick_sort(v + i, n - i);
}

static void merge_sort(int *v, int n) {
    if (n < 2) return;
    int half = n / 2, merged[n];
    merge_sort(v, half);
    merge_sort(v + half, n - half);
    for (int i = 0, a = 0, b = half; i < n; i++)
        merged[i] = b >= n || (a < half && v[a] <= v[b]) ? v[a++] : v[b++];
    memcpy(v, merged, sizeof merged);
}

static void sift_down(int *v, int at, int n) {
    for (int child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && v[child + 1] > v[child]) child++;
        if (v[at] >= v[child]) return;
        swap(&v[at], &v[child]);
    }
}

static void heap_sort(int *v, int n) {
    for (int i = n / 2; i-- > 0;) sift_down(v, i, n);
    while (n-- > 1) swap(&v[0], &v[n]), sift_down(v, 0, n);
}

static int compare_ints(const void *a, const void *b) {
    int x = *(const int *)a, y = *(const int *)b;
    return (x > y) - (x < y);
}

struct person { const char *name; int born; };

static int by_year_then_name(const void *a, const void *b) {
    const struct person *p = a, *q = b;
    return p->born != q->born ? p->born - q->born : strcmp(p->name, q->name);
}

int main(void) {
    int input[COUNT], expected[COUNT], sorted[COUNT];
    uint64_t state = 1;
    for (int i = 0; i < COUNT; i++) input[i] = (int)(state = state * 16807 % 2147483647) % 1000;
    memcpy(expected, input, sizeof input);
    qsort(expected, COUNT, sizeof *expected, compare_ints);

    struct { const char *name; void (*sort)(int *, int); } sorts[] = {
        {"quick", quick_sort}, {"merge", merge_sort}, {"heap", heap_sort}};
    for (size_t i = 0; i < sizeof sorts / sizeof *sorts; i++) {
        memcpy(sorted, input, sizeof input);
        sorts[i].sort(sorted, COUNT);
        printf("%-5s %s\n", sorts[i].name, memcmp(sorted, expected, sizeof sorted) ? "wrong" : "right");
    }
    struct person people[] = {{"Turing", 1912}, {"Hopper", 1906}, {"Godel", 1906}, {"Knuth", 1938}};
    qsort(people, 4, sizeof *people, by_year_then_name);
    for (int i = 0; i < 4; i++) printf("%d %s\n", people[i].born, people[i].name);
    struct person key = {"Turing", 1912}, *found = bsearch(&key, people, 4, sizeof key, by_year_then_name);
    printf("found at %td\n", found - people);
    return 0;
}
