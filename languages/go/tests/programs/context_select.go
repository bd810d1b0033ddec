// Concurrency control: contexts, select with timeouts, pipelines, a semaphore.
package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

func generate(ctx context.Context, limit int) <-chan int {
	out := make(chan int)
	go func() {
		defer close(out)
		for n := 1; n <= limit; n++ {
			select {
			case out <- n:
			case <-ctx.Done():
				return
			}
		}
	}()
	return out
}

func square(in <-chan int) <-chan int {
	out := make(chan int, 4)
	go func() {
		defer close(out)
		for n := range in {
			out <- n * n
		}
	}()
	return out
}

func slow(ctx context.Context) error {
	select {
	case <-time.After(time.Minute):
		return nil
	case <-ctx.Done():
		return fmt.Errorf("slow: %w", ctx.Err())
	}
}

func peakWithLimit(jobs, limit int) int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	gate := make(chan struct{}, limit)
	peak := 0
	for range jobs {
		wg.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			mu.Lock()
			peak = max(peak, len(gate))
			mu.Unlock()
			time.Sleep(time.Millisecond)
		})
	}
	wg.Wait()
	return peak
}

func main() {
	sum := 0
	for n := range square(generate(context.Background(), 100)) {
		sum += n
	}
	fmt.Println("sum of squares:", sum)

	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
	defer cancel()
	err := slow(ctx)
	fmt.Println(err, "|", errors.Is(err, context.DeadlineExceeded))

	fmt.Println("within limit:", peakWithLimit(20, 3) <= 3)
}
