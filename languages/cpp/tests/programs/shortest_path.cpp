// Graph algorithms: Dijkstra with priority_queue, Kruskal, topological order, structured bindings.
#include <algorithm>
#include <functional>
#include <iostream>
#include <map>
#include <numeric>
#include <queue>
#include <set>
#include <string>
#include <tuple>
#include <vector>

using Edge = std::tuple<int, int, int>;  // cost, from, to

const std::vector<Edge> EDGES = {{7, 1, 2}, {9, 1, 3}, {14, 1, 6}, {10, 2, 3}, {15, 2, 4}, {11, 3, 4}, {2, 3, 6}, {6, 4, 5}, {9, 5, 6}};

std::map<int, std::pair<int, int>> dijkstra(int start) {
    std::map<int, std::vector<std::pair<int, int>>> graph;
    for (auto [cost, a, b] : EDGES) {
        graph[a].emplace_back(b, cost);
        graph[b].emplace_back(a, cost);
    }
    std::map<int, std::pair<int, int>> settled;
    std::priority_queue<Edge, std::vector<Edge>, std::greater<>> queue;
    queue.emplace(0, 0, start);
    while (!queue.empty()) {
        auto [cost, via, node] = queue.top();
        queue.pop();
        if (!settled.try_emplace(node, cost, via).second) continue;
        for (auto [next, weight] : graph[node]) queue.emplace(cost + weight, node, next);
    }
    return settled;
}

int spanningTree() {
    std::vector<int> root(7);
    std::iota(root.begin(), root.end(), 0);
    std::function<int(int)> find = [&](int x) { return root[x] == x ? x : root[x] = find(root[x]); };
    auto sorted = EDGES;
    std::sort(sorted.begin(), sorted.end());
    int total = 0;
    for (auto [cost, a, b] : sorted) {
        if (find(a) == find(b)) continue;
        root[find(a)] = find(b);
        total += cost;
    }
    return total;
}

std::vector<std::string> topologicalOrder(const std::map<std::string, std::vector<std::string>>& needs) {
    std::vector<std::string> order;
    std::set<std::string> seen;
    std::function<void(const std::string&)> visit = [&](const std::string& name) {
        if (!seen.insert(name).second) return;
        for (const auto& other : needs.at(name)) visit(other);
        order.push_back(name);
    };
    for (const auto& entry : needs) visit(entry.first);
    return order;
}

int main() {
    auto settled = dijkstra(1);
    for (auto [node, reached] : settled) std::cout << node << ':' << reached.first << ' ';
    std::cout << '\n';
    std::vector<int> path;
    for (int node = 5; node != 0; node = settled[node].second) path.insert(path.begin(), node);
    for (int node : path) std::cout << node << (node == 5 ? "\n" : " -> ");
    std::cout << "spanning tree: " << spanningTree() << '\n';
    for (const auto& name : topologicalOrder({{"app", {"lib", "net"}}, {"net", {"lib", "os"}}, {"lib", {"os"}}, {"os", {}}, {"tests", {"app"}}}))
        std::cout << name << ' ';
    std::cout << '\n';
}
