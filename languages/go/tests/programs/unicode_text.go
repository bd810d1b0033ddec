// Strings: runes and bytes, invalid UTF-8, case mapping, builders, fields, a Caesar cipher.
package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

func reverse(s string) string {
	runes := []rune(s)
	slices.Reverse(runes)
	return string(runes)
}

func isPalindrome(s string) bool {
	letters := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, s)
	return letters == reverse(letters)
}

func caesar(s string, shift rune) string {
	rotate := func(r, base rune) rune { return base + (r-base+shift+26)%26 }
	return strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z':
			return rotate(r, 'a')
		case 'A' <= r && r <= 'Z':
			return rotate(r, 'A')
		}
		return r
	}, s)
}

func main() {
	for _, s := range []string{"naïve", "日本語", "🎉"} {
		fmt.Println(s, len(s), utf8.RuneCountInString(s), len(utf16.Encode([]rune(s))))
	}
	for i, r := range "aé日" {
		fmt.Printf("%d:%U ", i, r)
	}
	fmt.Println()

	broken := "ab\xffcd"
	fmt.Println(utf8.ValidString(broken), strings.ToValidUTF8(broken, "?"), []rune(broken)[2] == utf8.RuneError)
	fmt.Println(reverse("日本語"), strings.ToUpper("ñandú"), strings.EqualFold("Straße", "STRAßE"))
	fmt.Println(isPalindrome("A man, a plan, a canal: Panama!"), isPalindrome("Was it a dog?"))
	fmt.Println(caesar("Hello, World!", 13), caesar(caesar("Zebra", 3), -3))
	fmt.Println(strconv.Quote("tab\t\"q\" é \x00"), strconv.QuoteToASCII("é"))

	fmt.Printf("%q\n", strings.FieldsFunc("a1b22c", unicode.IsDigit))
	before, after, found := strings.Cut("key=value=x", "=")
	fmt.Println(before, after, found)
	fmt.Println(strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace("<b>"), strings.TrimLeft("00120", "0"))

	var b strings.Builder
	for i := range 5 {
		fmt.Fprintf(&b, "%d,", i*i)
	}
	fmt.Println(strings.TrimSuffix(b.String(), ","))
	fmt.Printf("|%6.2f|%-6s|%06d|%x|%+d|%8b|%e|\n", 3.14159, "go", 42, "hi", 5, 5, 12345.678)
}
