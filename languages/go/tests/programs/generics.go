// Generics: constraints, map and sum, a generic binary tree with an iterator.
package main

import (
	"cmp"
	"fmt"
	"iter"
	"slices"
	"strings"
)

type Number interface {
	~int | ~int64 | ~float64
}

func Map[T, U any](items []T, f func(T) U) []U {
	out := make([]U, 0, len(items))
	for _, item := range items {
		out = append(out, f(item))
	}
	return out
}

func Sum[T Number](items ...T) (total T) {
	for _, item := range items {
		total += item
	}
	return total
}

type Tree[K cmp.Ordered] struct {
	key         K
	left, right *Tree[K]
}

func (t *Tree[K]) Insert(key K) *Tree[K] {
	if t == nil {
		return &Tree[K]{key: key}
	}
	switch c := cmp.Compare(key, t.key); {
	case c < 0:
		t.left = t.left.Insert(key)
	case c > 0:
		t.right = t.right.Insert(key)
	}
	return t
}

func (t *Tree[K]) All() iter.Seq[K] {
	return func(yield func(K) bool) { t.walk(yield) }
}

func (t *Tree[K]) walk(yield func(K) bool) bool {
	return t == nil || t.left.walk(yield) && yield(t.key) && t.right.walk(yield)
}

type Celsius float64

func main() {
	fmt.Println(Map([]string{"go", "rust", "c"}, strings.ToUpper), Map([]int{1, 2, 3}, func(n int) string { return strings.Repeat("*", n) }))
	fmt.Println(Sum(1, 2, 3), Sum(1.5, 2.5), Sum(Celsius(20), Celsius(1.5)))

	var tree *Tree[string]
	for word := range strings.FieldsSeq("the quick brown fox jumps over the lazy dog") {
		tree = tree.Insert(word)
	}
	fmt.Println(slices.Collect(tree.All()))
	for word := range tree.All() {
		if word > "f" {
			fmt.Println("first after f:", word)
			break
		}
	}
}
