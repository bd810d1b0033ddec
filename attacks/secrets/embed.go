// tries: makes the compiler embed host files
// seen-in: general
// walls: compiler, mount
// expect: compile_error
package main

import _ "embed"

//go:embed @SECRET@ ../../../../../../@SECRET@
var stolen string

func main() { println(stolen) }
