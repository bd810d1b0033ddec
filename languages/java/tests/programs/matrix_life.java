// Arrays and simulation: matrix powers, Game of Life on a torus, random generators.
import java.util.Arrays;
import java.util.Random;

public class MatrixLife {
    static long[][] multiply(long[][] a, long[][] b) {
        long[][] out = new long[a.length][b[0].length];
        for (int i = 0; i < a.length; i++) {
            for (int j = 0; j < b[0].length; j++) {
                for (int k = 0; k < b.length; k++) {
                    out[i][j] += a[i][k] * b[k][j];
                }
            }
        }
        return out;
    }

    static long fibonacci(int n) {
        long[][] result = {{1, 0}, {0, 1}};
        long[][] base = {{1, 1}, {1, 0}};
        for (; n > 0; n >>= 1) {
            if ((n & 1) == 1) {
                result = multiply(result, base);
            }
            base = multiply(base, base);
        }
        return result[0][1];
    }

    static boolean[][] step(boolean[][] cells) {
        int size = cells.length;
        boolean[][] next = new boolean[size][size];
        for (int r = 0; r < size; r++) {
            for (int c = 0; c < size; c++) {
                int around = cells[r][c] ? -1 : 0;
                for (int i = 0; i < 9; i++) {
                    around += cells[(r + i / 3 - 1 + size) % size][(c + i % 3 - 1 + size) % size] ? 1 : 0;
                }
                next[r][c] = around == 3 || around == 2 && cells[r][c];
            }
        }
        return next;
    }

    public static void main(String[] args) {
        System.out.println("fib(90): " + fibonacci(90));

        boolean[][] glider = new boolean[6][6];
        for (int[] cell : new int[][] {{0, 1}, {1, 2}, {2, 0}, {2, 1}, {2, 2}}) {
            glider[cell[0]][cell[1]] = true;
        }
        boolean[][] cells = glider;
        for (int i = 0; i < 24; i++) {
            cells = step(cells);
        }
        System.out.println("glider home again: " + Arrays.deepEquals(cells, glider));

        long seed = 1;
        for (int i = 0; i < 10_000; i++) {
            seed = seed * 16_807 % 2_147_483_647;
        }
        System.out.println("10000th: " + seed);
        Random random = new Random(42);
        System.out.println("java.util.Random: " + random.nextInt(10) + " " + random.nextInt(100));
    }
}
