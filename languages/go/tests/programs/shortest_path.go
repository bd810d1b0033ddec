// Graphs: Dijkstra with container/heap, depth-first topological order.
package main

import (
	"container/heap"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

type edge struct{ from, to, cost int }

type item struct{ node, cost int }

type queue []item

func (q queue) Len() int           { return len(q) }
func (q queue) Less(i, j int) bool { return q[i].cost < q[j].cost }
func (q queue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *queue) Push(x any)        { *q = append(*q, x.(item)) }
func (q *queue) Pop() any {
	last := len(*q) - 1
	x := (*q)[last]
	*q = (*q)[:last]
	return x
}

func dijkstra(edges []edge, start, nodes int) []int {
	distance := slices.Repeat([]int{math.MaxInt}, nodes+1)
	q := &queue{{start, 0}}
	for q.Len() > 0 {
		at := heap.Pop(q).(item)
		if distance[at.node] <= at.cost {
			continue
		}
		distance[at.node] = at.cost
		for _, e := range edges {
			switch at.node {
			case e.from:
				heap.Push(q, item{e.to, at.cost + e.cost})
			case e.to:
				heap.Push(q, item{e.from, at.cost + e.cost})
			}
		}
	}
	return distance[1:]
}

func topologicalOrder(needs map[string][]string) []string {
	var order []string
	done := map[string]bool{}
	var visit func(string)
	visit = func(name string) {
		if done[name] {
			return
		}
		done[name] = true
		for _, other := range needs[name] {
			visit(other)
		}
		order = append(order, name)
	}
	for _, name := range slices.Sorted(maps.Keys(needs)) {
		visit(name)
	}
	return order
}

func main() {
	edges := []edge{{1, 2, 7}, {1, 3, 9}, {1, 6, 14}, {2, 3, 10}, {2, 4, 15}, {3, 4, 11}, {3, 6, 2}, {4, 5, 6}, {5, 6, 9}}
	fmt.Println("distances:", dijkstra(edges, 1, 6))
	needs := map[string][]string{
		"app": {"lib", "net"}, "net": {"lib", "os"}, "lib": {"os"}, "os": nil, "tests": {"app"},
	}
	fmt.Println("build order:", strings.Join(topologicalOrder(needs), " "))
}
