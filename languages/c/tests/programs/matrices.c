// Linear algebra: matrix powers, Gaussian elimination, determinants by Bareiss, bit manipulation.
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { N = 3 };

static void multiply(uint64_t out[2][2], uint64_t a[2][2], uint64_t b[2][2]) {
    uint64_t c[2][2] = {{0}};
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < 2; j++)
            for (int k = 0; k < 2; k++) c[i][j] += a[i][k] * b[k][j];
    memcpy(out, c, sizeof c);
}

static uint64_t fibonacci(unsigned n) {
    uint64_t result[2][2] = {{1, 0}, {0, 1}}, base[2][2] = {{1, 1}, {1, 0}};
    for (; n; n >>= 1) {
        if (n & 1) multiply(result, result, base);
        multiply(base, base, base);
    }
    return result[0][1];
}

static void solve(double m[N][N + 1], double x[N]) {
    for (int col = 0; col < N; col++) {
        int pivot = col;
        for (int r = col; r < N; r++)
            if (m[r][col] * m[r][col] > m[pivot][col] * m[pivot][col]) pivot = r;
        for (int c = 0; c <= N; c++) {
            double t = m[col][c];
            m[col][c] = m[pivot][c];
            m[pivot][c] = t;
        }
        for (int r = col + 1; r < N; r++)
            for (int c = N; c >= col; c--) m[r][c] -= m[r][col] / m[col][col] * m[col][c];
    }
    for (int r = N; r-- > 0;) {
        x[r] = m[r][N];
        for (int c = r + 1; c < N; c++) x[r] -= m[r][c] * x[c];
        x[r] /= m[r][r];
    }
}

// Bareiss: every division is exact, so integers suffice.
static long determinant(long m[4][4]) {
    long previous = 1;
    for (int k = 0; k < 3; k++) {
        for (int i = k + 1; i < 4; i++)
            for (int j = k + 1; j < 4; j++) m[i][j] = (m[i][j] * m[k][k] - m[i][k] * m[k][j]) / previous;
        previous = m[k][k];
    }
    return m[3][3];
}

static int popcount(uint32_t x) {
    int bits = 0;
    for (; x; x &= x - 1) bits++;
    return bits;
}

int main(void) {
    printf("fib(90): %llu\n", (unsigned long long)fibonacci(90));
    double system[N][N + 1] = {{2, 1, -1, 8}, {-3, -1, 2, -11}, {-2, 1, 2, -3}}, x[N];
    solve(system, x);
    printf("solution: %.6f %.6f %.6f\n", x[0], x[1], x[2]);

    long vandermonde[4][4];
    for (int i = 0; i < 4; i++)
        for (int j = 0, power = 1; j < 4; j++, power *= i + 2) vandermonde[i][j] = power;
    printf("determinant: %ld\n", determinant(vandermonde));
    printf("popcount: %d %d\n", popcount(0xdeadbeef), popcount(0xffffffff));
    printf("gray:");
    for (unsigned i = 0; i < 8; i++) printf(" %u", i ^ i >> 1);
    union { float f; uint32_t bits; } one = {1.5f};
    printf("\nfloat 1.5: %08x, signed shift: %d\n", one.bits, -8 >> 1);
    return 0;
}
