// tries: opens a port that is reachable from outside
// seen-in: general
// walls: net
// listens: yes
package main

import (
	"fmt"
	"net"
	"os"
	"time"
)

func main() {
	if listener, err := net.Listen("tcp4", "0.0.0.0:"+os.Getenv("FREE_PORT")); err == nil {
		defer listener.Close()
		time.Sleep(300 * time.Millisecond)
	}
	fmt.Println("attempted")
}
