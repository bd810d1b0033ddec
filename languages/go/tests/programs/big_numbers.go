// math/big: factorials, Fibonacci, primality, rationals, modular arithmetic, high precision floats.
package main

import (
	"fmt"
	"math/big"
)

func digitSum(n *big.Int) (sum int) {
	for _, digit := range n.String() {
		sum += int(digit - '0')
	}
	return sum
}

func fibonacci(n int) *big.Int {
	a, b := big.NewInt(0), big.NewInt(1)
	for range n {
		a.Add(a, b)
		a, b = b, a
	}
	return a
}

func harmonic(n int64) *big.Rat {
	sum := new(big.Rat)
	for k := int64(1); k <= n; k++ {
		sum.Add(sum, big.NewRat(1, k))
	}
	return sum
}

func main() {
	fmt.Println("digit sum of 100!:", digitSum(new(big.Int).MulRange(1, 100)))
	power := new(big.Int).Exp(big.NewInt(2), big.NewInt(1000), nil)
	fmt.Println("digit sum of 2^1000:", digitSum(power))
	fmt.Println("fib(90):", fibonacci(90))
	fmt.Println("fib(300):", fibonacci(300))

	one := big.NewInt(1)
	for _, exponent := range []uint{61, 67, 127} {
		mersenne := new(big.Int).Sub(new(big.Int).Lsh(one, exponent), one)
		fmt.Printf("2^%d-1 = %s prime: %t\n", exponent, mersenne, mersenne.ProbablyPrime(20))
	}

	n, e, d := big.NewInt(3233), big.NewInt(17), big.NewInt(2753)
	cipher := new(big.Int).Exp(big.NewInt(65), e, n)
	fmt.Println("RSA:", cipher, new(big.Int).Exp(cipher, d, n))
	fmt.Println("inverse:", new(big.Int).ModInverse(e, big.NewInt(780)))
	fmt.Println("gcd:", new(big.Int).GCD(nil, nil, big.NewInt(1071), big.NewInt(462)))

	fmt.Println("H(10):", harmonic(10))
	fmt.Println("choose:", new(big.Int).Binomial(100, 50))
	root := new(big.Float).SetPrec(200).SetInt64(2)
	fmt.Println("sqrt 2:", root.Sqrt(root).Text('f', 50))
	hex, ok := new(big.Int).SetString("deadbeefcafebabe", 16)
	fmt.Println("hex:", hex, ok, hex.BitLen())
}
