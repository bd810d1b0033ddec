# Graph search: Dijkstra with a heap on a weighted graph, breadth-first search in a maze.
import heapq
from collections import deque

EDGES = [
    (1, 2, 7), (1, 3, 9), (1, 6, 14), (2, 3, 10), (2, 4, 15),
    (3, 4, 11), (3, 6, 2), (4, 5, 6), (5, 6, 9),
]

MAZE = """\
S.#.....
..#.###.
#.#...#.
#.###.#.
#.....#E
""".splitlines()


def dijkstra(edges, start):
    graph = {}
    for a, b, cost in edges:
        graph.setdefault(a, []).append((b, cost))
        graph.setdefault(b, []).append((a, cost))
    distance, parent, queue = {}, {}, [(0, start, None)]
    while queue:
        so_far, node, via = heapq.heappop(queue)
        if node in distance:
            continue
        distance[node], parent[node] = so_far, via
        for other, cost in graph[node]:
            if other not in distance:
                heapq.heappush(queue, (so_far + cost, other, node))
    return distance, parent


def path_to(parent, node):
    path = []
    while node is not None:
        path.append(node)
        node = parent[node]
    return path[::-1]


def maze_steps(maze):
    cells = {(r, c): ch for r, row in enumerate(maze) for c, ch in enumerate(row)}
    start = next(cell for cell, ch in cells.items() if ch == "S")
    steps, queue = {start: 0}, deque([start])
    while queue:
        r, c = queue.popleft()
        if cells[r, c] == "E":
            return steps[r, c]
        for nxt in ((r + 1, c), (r - 1, c), (r, c + 1), (r, c - 1)):
            if cells.get(nxt, "#") != "#" and nxt not in steps:
                steps[nxt] = steps[r, c] + 1
                queue.append(nxt)
    return None


distance, parent = dijkstra(EDGES, 1)
print("distances:", [distance[node] for node in sorted(distance)])
print("path to 5:", " -> ".join(map(str, path_to(parent, 5))))
print("maze steps:", maze_steps(MAZE))
