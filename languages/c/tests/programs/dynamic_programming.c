// Dynamic programming and backtracking: edit distance, knapsack, coins, sieve, queens, Collatz.
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int min(int a, int b) { return a < b ? a : b; }

static int edit_distance(const char *a, const char *b) {
    int m = (int)strlen(a), n = (int)strlen(b), d[m + 1][n + 1];
    for (int i = 0; i <= m; i++)
        for (int j = 0; j <= n; j++)
            d[i][j] = !i ? j : !j ? i : min(min(d[i - 1][j], d[i][j - 1]) + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1]));
    return d[m][n];
}

static int knapsack(const int (*items)[2], int count, int capacity) {
    int best[capacity + 1];
    memset(best, 0, sizeof best);
    for (int i = 0; i < count; i++)
        for (int room = capacity; room >= items[i][0]; room--) {
            int with = best[room - items[i][0]] + items[i][1];
            if (with > best[room]) best[room] = with;
        }
    return best[capacity];
}

static long ways(const int *coins, int count, int total) {
    long ways[total + 1];
    memset(ways, 0, sizeof ways);
    ways[0] = 1;
    for (int i = 0; i < count; i++)
        for (int amount = coins[i]; amount <= total; amount++) ways[amount] += ways[amount - coins[i]];
    return ways[total];
}

static int sieve(int limit, long *sum) {
    bool *composite = calloc((size_t)limit, sizeof *composite);
    int count = 0;
    for (int n = 2; n < limit; n++) {
        if (composite[n]) continue;
        count++;
        *sum += n;
        for (long multiple = (long)n * n; multiple < limit; multiple += n) composite[multiple] = true;
    }
    free(composite);
    return count;
}

static int queens(int size, unsigned columns, unsigned left, unsigned right) {
    unsigned full = (1u << size) - 1, open = full & ~(columns | left | right);
    if (columns == full) return 1;
    int count = 0;
    for (unsigned bit; open; open ^= bit) {
        bit = open & -open;
        count += queens(size, columns | bit, (left | bit) << 1, (right | bit) >> 1);
    }
    return count;
}

int main(void) {
    const int items[][2] = {{1, 1}, {3, 4}, {4, 5}, {5, 7}}, coins[] = {1, 2, 5, 10, 20, 50, 100, 200};
    printf("edits: %d %d\n", edit_distance("kitten", "sitting"), edit_distance("intention", "execution"));
    printf("knapsack: %d, change: %ld\n", knapsack(items, 4, 7), ways(coins, 8, 200));
    long sum = 0;
    int count = sieve(10000, &sum);
    printf("primes below 10000: %d, sum %ld\n", count, sum);
    printf("queens: %d %d\n", queens(6, 0, 0, 0), queens(8, 0, 0, 0));

    int longest = 0, terms = 0;
    for (int n = 1; n < 10000; n++) {
        int length = 1;
        for (long x = n; x > 1; length++) x = x % 2 ? 3 * x + 1 : x / 2;
        if (length > terms) longest = n, terms = length;
    }
    printf("collatz: %d with %d terms\n", longest, terms);
    return 0;
}
