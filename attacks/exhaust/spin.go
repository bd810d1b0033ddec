// tries: spins in more threads than there are CPUs, and catches every signal
// seen-in: general
// walls: limits
// limits: wall_time=500ms
// expect: timeout
// alone: yes
package main

import "os/signal"

func main() {
	signal.Ignore()
	for i := 0; i < 20; i++ {
		go func() {
			for {
			}
		}()
	}
	select {}
}
