// Interfaces, embedding, closures, deferred recovery, wrapped errors, a small stack machine.
package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

type Shape interface {
	Area() float64
	fmt.Stringer
}

type named struct{ name string }

func (n named) String() string { return n.name }

type Circle struct {
	named
	radius float64
}

type Rect struct {
	named
	w, h float64
}

func (c Circle) Area() float64 { return math.Pi * c.radius * c.radius }
func (r Rect) Area() float64   { return r.w * r.h }

var ErrUnderflow = errors.New("stack underflow")

type SyntaxError struct{ Token string }

func (e *SyntaxError) Error() string { return "bad token " + strconv.Quote(e.Token) }

var operators = map[string]func(a, b int) int{
	"+": func(a, b int) int { return a + b },
	"*": func(a, b int) int { return a * b },
	"/": func(a, b int) int { return a / b },
}

func evaluate(source string) (result int, err error) {
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("recovered: %v", r)
		}
	}()
	var stack []int
	for token := range strings.FieldsSeq(source) {
		if n, err := strconv.Atoi(token); err == nil {
			stack = append(stack, n)
			continue
		}
		operator, ok := operators[token]
		if !ok {
			return 0, fmt.Errorf("evaluate: %w", &SyntaxError{token})
		}
		top := len(stack) - 2
		if top < 0 {
			return 0, fmt.Errorf("evaluate %q: %w", token, ErrUnderflow)
		}
		stack = append(stack[:top], operator(stack[top], stack[top+1]))
	}
	return stack[0], nil
}

func main() {
	for _, s := range []Shape{Circle{named{"circle"}, 2}, Rect{named{"rect"}, 3, 4}} {
		fmt.Printf("%v %.4f\n", s, s.Area())
	}
	for _, source := range []string{"3 4 + 2 *", "5 1 2 + 4 * +", "1 +", "1 x", "1 0 /", ""} {
		result, err := evaluate(source)
		var syntax *SyntaxError
		fmt.Println(result, err, errors.Is(err, ErrUnderflow), errors.As(err, &syntax))
	}
}
