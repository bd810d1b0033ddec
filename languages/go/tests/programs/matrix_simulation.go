// Numeric work: matrix powers, dynamic programming, own PCG generator.
package main

import (
	"fmt"
	"math/bits"
)

type Matrix [][]int

func (a Matrix) Mul(b Matrix) Matrix {
	out := make(Matrix, len(a))
	for i := range a {
		out[i] = make([]int, len(b[0]))
		for j := range b[0] {
			for k := range b {
				out[i][j] += a[i][k] * b[k][j]
			}
		}
	}
	return out
}

func (a Matrix) Pow(n int) Matrix {
	result := Matrix{{1, 0}, {0, 1}}
	for ; n > 0; n >>= 1 {
		if n&1 == 1 {
			result = result.Mul(a)
		}
		a = a.Mul(a)
	}
	return result
}

// PCG32 is O'Neill's generator; (42, 54) are the arguments of its reference demonstration.
type PCG32 struct{ state, inc uint64 }

func NewPCG32(seed, sequence uint64) *PCG32 {
	p := &PCG32{0, sequence<<1 | 1}
	p.Next()
	p.state += seed
	p.Next()
	return p
}

func (p *PCG32) Next() uint32 {
	old := p.state
	p.state = old*6364136223846793005 + p.inc
	return bits.RotateLeft32(uint32(((old>>18)^old)>>27), -int(old>>59))
}

func matrixChain(dims []int) int {
	n := len(dims) - 1
	best := make([][]int, n)
	for i := range best {
		best[i] = make([]int, n)
	}
	for length := 1; length < n; length++ {
		for i := 0; i+length < n; i++ {
			j := i + length
			for k := i; k < j; k++ {
				cost := best[i][k] + best[k+1][j] + dims[i]*dims[k+1]*dims[j+1]
				if k == i || cost < best[i][j] {
					best[i][j] = cost
				}
			}
		}
	}
	return best[0][n-1]
}

func main() {
	fmt.Println("fib(90):", Matrix{{1, 1}, {1, 0}}.Pow(90)[0][1])
	fmt.Println("matrix chain:", matrixChain([]int{30, 35, 15, 5, 10, 20, 25}))

	random := NewPCG32(42, 54)
	fmt.Printf("random: %08x %08x %08x\n", random.Next(), random.Next(), random.Next())
}
