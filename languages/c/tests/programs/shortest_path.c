// Graph algorithms: Dijkstra with a binary heap, breadth-first maze search.
#include <limits.h>
#include <stdio.h>
#include <string.h>

enum { NODES = 7, FAR = INT_MAX / 2, ROWS = 5, COLUMNS = 8 };

static const int EDGES[][3] = {{1, 2, 7}, {1, 3, 9}, {1, 6, 14}, {2, 3, 10}, {2, 4, 15}, {3, 4, 11}, {3, 6, 2}, {4, 5, 6}, {5, 6, 9}};
static const char MAZE[ROWS][COLUMNS + 1] = {"S.#.....", "..#.###.", "#.#...#.", "#.###.#.", "#.....#E"};

static int weight[NODES][NODES];

struct item { int cost, node; };
static struct item heap[64];
static int heap_size;

static void push(struct item item) {
    int at = heap_size++;
    for (; at > 0 && heap[(at - 1) / 2].cost > item.cost; at = (at - 1) / 2) heap[at] = heap[(at - 1) / 2];
    heap[at] = item;
}

static struct item pop(void) {
    struct item top = heap[0], last = heap[--heap_size];
    int at = 0;
    for (int child; (child = 2 * at + 1) < heap_size; at = child) {
        if (child + 1 < heap_size && heap[child + 1].cost < heap[child].cost) child++;
        if (last.cost <= heap[child].cost) break;
        heap[at] = heap[child];
    }
    heap[at] = last;
    return top;
}

static void dijkstra(int start, int *distance, int *parent) {
    for (int i = 0; i < NODES; i++) distance[i] = FAR;
    distance[start] = parent[start] = 0;
    push((struct item){0, start});
    while (heap_size) {
        struct item now = pop();
        for (int next = 1; next < NODES; next++)
            if (now.cost + weight[now.node][next] < distance[next]) {
                distance[next] = now.cost + weight[now.node][next];
                parent[next] = now.node;
                push((struct item){distance[next], next});
            }
    }
}

static int maze_steps(void) {
    int steps[ROWS * COLUMNS], queue[ROWS * COLUMNS] = {0}, tail = 1;
    const int moves[4][2] = {{1, 0}, {-1, 0}, {0, 1}, {0, -1}};
    memset(steps, -1, sizeof steps);
    steps[0] = 0;
    for (int head = 0; head < tail; head++) {
        int row = queue[head] / COLUMNS, column = queue[head] % COLUMNS;
        if (MAZE[row][column] == 'E') return steps[queue[head]];
        for (int i = 0; i < 4; i++) {
            int r = row + moves[i][0], c = column + moves[i][1], to = r * COLUMNS + c;
            if (r < 0 || r >= ROWS || c < 0 || c >= COLUMNS || MAZE[r][c] == '#' || steps[to] >= 0) continue;
            steps[to] = steps[queue[head]] + 1;
            queue[tail++] = to;
        }
    }
    return -1;
}

int main(void) {
    int distance[NODES], parent[NODES];
    for (int i = 0; i < NODES * NODES; i++) weight[i / NODES][i % NODES] = FAR;
    for (size_t i = 0; i < sizeof EDGES / sizeof *EDGES; i++)
        weight[EDGES[i][0]][EDGES[i][1]] = weight[EDGES[i][1]][EDGES[i][0]] = EDGES[i][2];
    dijkstra(1, distance, parent);
    for (int i = 1; i < NODES; i++) printf("%d: %2d\n", i, distance[i]);
    for (int node = 5; node; node = parent[node]) printf("%d%s", node, parent[node] ? " <- " : "\n");
    printf("maze steps: %d\n", maze_steps());
    return 0;
}
