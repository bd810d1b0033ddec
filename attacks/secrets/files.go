// tries: reads host files from Go, and opens descriptors that it was not given
// seen-in: general
// walls: mount
package main

import (
	"fmt"
	"os"
	"syscall"
)

func main() {
	for _, name := range []string{os.Getenv("SECRET"), os.Getenv("PRIVATE"), "/proc/self/root" + os.Getenv("SECRET")} {
		if content, err := os.ReadFile(name); err == nil {
			fmt.Println(string(content))
		}
	}
	buffer := make([]byte, 4096)
	for fd := 100; fd < 256; fd++ {
		if n, err := syscall.Read(fd, buffer); err == nil && n > 0 {
			fmt.Println(string(buffer[:n]))
		}
	}
	fmt.Println("attempted")
}
