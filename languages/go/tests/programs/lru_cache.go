// Data structures: a generic least-recently-used cache, a mutex-guarded counter.
package main

import (
	"container/list"
	"fmt"
	"sync"
)

type entry[K comparable, V any] struct {
	key   K
	value V
}

type LRU[K comparable, V any] struct {
	capacity int
	order    *list.List
	items    map[K]*list.Element
}

func NewLRU[K comparable, V any](capacity int) *LRU[K, V] {
	return &LRU[K, V]{capacity, list.New(), map[K]*list.Element{}}
}

func (c *LRU[K, V]) Get(key K) (value V, ok bool) {
	element, ok := c.items[key]
	if !ok {
		return value, false
	}
	c.order.MoveToFront(element)
	return element.Value.(entry[K, V]).value, true
}

func (c *LRU[K, V]) Put(key K, value V) {
	if old, ok := c.items[key]; ok {
		c.order.Remove(old)
	}
	c.items[key] = c.order.PushFront(entry[K, V]{key, value})
	if c.order.Len() > c.capacity {
		delete(c.items, c.order.Remove(c.order.Back()).(entry[K, V]).key)
	}
}

// Counter counts letters from several goroutines.
type Counter struct {
	sync.Mutex
	counts map[rune]int
}

func (c *Counter) Add(word string) {
	c.Lock()
	defer c.Unlock()
	for _, r := range word {
		c.counts[r]++
	}
}

func main() {
	cache := NewLRU[string, int](2)
	cache.Put("a", 1)
	cache.Put("b", 2)
	cache.Get("a")
	cache.Put("c", 3)
	_, hasB := cache.Get("b")
	a, hasA := cache.Get("a")
	fmt.Println("b:", hasB, "a:", a, hasA)

	var wg sync.WaitGroup
	counter := Counter{counts: map[rune]int{}}
	for _, word := range []string{"mississippi", "missouri", "misspelt"} {
		wg.Go(func() { counter.Add(word) })
	}
	wg.Wait()
	fmt.Println("s:", counter.counts['s'], "i:", counter.counts['i'], "m:", counter.counts['m'])
}
