// Graph algorithms: Dijkstra with PriorityQueue, breadth-first maze search.
import java.util.ArrayDeque;
import java.util.Arrays;
import java.util.Comparator;
import java.util.LinkedList;
import java.util.List;
import java.util.PriorityQueue;
import java.util.Queue;

public class ShortestPath {
    record Edge(int from, int to, int cost) {}

    record Visit(int node, int cost) {}

    private static final List<Edge> EDGES = List.of(
        new Edge(1, 2, 7), new Edge(1, 3, 9), new Edge(1, 6, 14), new Edge(2, 3, 10), new Edge(2, 4, 15),
        new Edge(3, 4, 11), new Edge(3, 6, 2), new Edge(4, 5, 6), new Edge(5, 6, 9));

    private static final String[] MAZE = {"S.#.....", "..#.###.", "#.#...#.", "#.###.#.", "#.....#E"};

    static void dijkstra(int start, int[] distance, int[] parent) {
        Arrays.fill(distance, Integer.MAX_VALUE);
        distance[start] = 0;
        PriorityQueue<Visit> queue = new PriorityQueue<>(Comparator.comparingInt(Visit::cost));
        queue.add(new Visit(start, 0));
        while (!queue.isEmpty()) {
            Visit visit = queue.poll();
            for (Edge edge : EDGES) {
                if (edge.from != visit.node && edge.to != visit.node) {
                    continue;
                }
                int other = edge.from == visit.node ? edge.to : edge.from;
                if (visit.cost + edge.cost < distance[other]) {
                    distance[other] = visit.cost + edge.cost;
                    parent[other] = visit.node;
                    queue.add(new Visit(other, distance[other]));
                }
            }
        }
    }

    static int mazeSteps() {
        int width = MAZE[0].length();
        int[] steps = new int[width * MAZE.length];
        Queue<Integer> queue = new ArrayDeque<>(List.of(0));
        while (!queue.isEmpty()) {
            int at = queue.poll();
            int row = at / width;
            int column = at % width;
            if (MAZE[row].charAt(column) == 'E') {
                return steps[at];
            }
            for (int[] d : new int[][] {{1, 0}, {-1, 0}, {0, 1}, {0, -1}}) {
                int r = row + d[0];
                int c = column + d[1];
                boolean inside = r >= 0 && r < MAZE.length && c >= 0 && c < width;
                if (inside && MAZE[r].charAt(c) != '#' && MAZE[r].charAt(c) != 'S' && steps[r * width + c] == 0) {
                    steps[r * width + c] = steps[at] + 1;
                    queue.add(r * width + c);
                }
            }
        }
        return -1;
    }

    public static void main(String[] args) {
        int[] distance = new int[7];
        int[] parent = new int[7];
        dijkstra(1, distance, parent);
        System.out.println("distances: " + Arrays.toString(Arrays.copyOfRange(distance, 1, 7)));
        LinkedList<Integer> path = new LinkedList<>();
        for (int node = 5; node != 0; node = parent[node]) {
            path.addFirst(node);
        }
        System.out.println("path: " + path);
        System.out.println("maze steps: " + mazeSteps());
    }
}
