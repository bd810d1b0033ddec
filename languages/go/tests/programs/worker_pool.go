// Goroutines and channels: a worker pool, atomics, a prime sieve pipeline.
package main

import (
	"fmt"
	"sync"
	"sync/atomic"
)

type span struct{ from, to int }

func isPrime(n int) bool {
	for d := 2; d*d <= n; d++ {
		if n%d == 0 {
			return false
		}
	}
	return n > 1
}

func countPrimes(limit, step, workers int) (total int64) {
	jobs := make(chan span)
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for job := range jobs {
				for n := job.from; n < job.to; n++ {
					if isPrime(n) {
						atomic.AddInt64(&total, 1)
					}
				}
			}
		}()
	}
	for from := 0; from < limit; from += step {
		jobs <- span{from, min(from+step, limit)}
	}
	close(jobs)
	wg.Wait()
	return total
}

// sieve chains one filtering goroutine per prime found.
func sieve(count int) []int {
	source := make(chan int)
	go func() {
		for n := 2; ; n++ {
			source <- n
		}
	}()
	var primes []int
	for in := (<-chan int)(source); len(primes) < count; {
		prime := <-in
		primes = append(primes, prime)
		out := make(chan int)
		go func(in <-chan int) {
			for n := range in {
				if n%prime != 0 {
					out <- n
				}
			}
		}(in)
		in = out
	}
	return primes
}

func main() {
	fmt.Println("primes below 10000:", countPrimes(10000, 700, 4))
	fmt.Println("sieve:", sieve(12))
}
