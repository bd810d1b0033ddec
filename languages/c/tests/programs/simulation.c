// Simulation with own generators: PCG32, Park-Miller, Game of Life on a torus, Langton's ant.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { SIZE = 128 };

struct pcg { uint64_t state, increment; };

static uint32_t pcg_next(struct pcg *g) {
    uint64_t old = g->state;
    g->state = old * 6364136223846793005u + g->increment;
    uint32_t folded = (uint32_t)((old >> 18 ^ old) >> 27), turn = (uint32_t)(old >> 59);
    return folded >> turn | folded << (-turn & 31);
}

static struct pcg pcg_seed(uint64_t seed, uint64_t sequence) {
    struct pcg g = {0, sequence << 1 | 1};
    pcg_next(&g);
    g.state += seed;
    pcg_next(&g);
    return g;
}

static unsigned char grid[SIZE][SIZE];

static void place(const char *const *rows, int count, int top, int left) {
    memset(grid, 0, sizeof grid);
    for (int r = 0; r < count; r++)
        for (int c = 0; rows[r][c]; c++) grid[top + r][left + c] = rows[r][c] == '#';
}

static void generation(void) {
    static unsigned char next[SIZE][SIZE];
    for (int r = 0; r < SIZE; r++)
        for (int c = 0; c < SIZE; c++) {
            int around = -grid[r][c];
            for (int i = 0; i < 9; i++) around += grid[(r + i / 3 - 1 + SIZE) % SIZE][(c + i % 3 - 1 + SIZE) % SIZE];
            next[r][c] = around == 3 || (around == 2 && grid[r][c]);
        }
    memcpy(grid, next, sizeof grid);
}

static int population(void) {
    int alive = 0;
    for (int i = 0; i < SIZE * SIZE; i++) alive += grid[i / SIZE][i % SIZE];
    return alive;
}

static int langtons_ant(int steps) {
    const int dr[] = {-1, 0, 1, 0}, dc[] = {0, 1, 0, -1};
    memset(grid, 0, sizeof grid);
    for (int r = SIZE / 2, c = SIZE / 2, heading = 0; steps-- > 0;) {
        heading = (heading + (grid[r][c] ? 3 : 1)) % 4;
        grid[r][c] ^= 1;
        r = (r + dr[heading] + SIZE) % SIZE;
        c = (c + dc[heading] + SIZE) % SIZE;
    }
    return population();
}

int main(void) {
    struct pcg random = pcg_seed(42, 54);
    for (int i = 0; i < 6; i++) printf("%08x%c", pcg_next(&random), i < 5 ? ' ' : '\n');
    uint64_t park_miller = 1;
    for (int i = 0; i < 10000; i++) park_miller = park_miller * 16807 % 2147483647;
    printf("10000th: %u\n", (unsigned)park_miller);

    place((const char *const[]){".#.", "..#", "###"}, 3, 0, 0);
    for (int i = 0; i < 40; i++) generation();
    printf("glider: %d cells, nose at 12,12: %d\n", population(), grid[12][12]);
    place((const char *const[]){".##", "##.", ".#."}, 3, 60, 60);
    for (int i = 0; i < 100; i++) generation();
    printf("r-pentomino after 100: %d\n", population());
    printf("ant after 11000: %d\n", langtons_ant(11000));
    return 0;
}
