# Integer arithmetic: a sieve, greatest common divisors, Fibonacci numbers, Collatz, base conversion.
set -euo pipefail

sieve() {
    local limit=$1 n multiple
    local -a composite=()
    primes=()
    for ((n = 2; n < limit; n++)); do
        [[ -n ${composite[n]:-} ]] && continue
        primes+=("$n")
        for ((multiple = n * n; multiple < limit; multiple += n)); do
            composite[multiple]=1
        done
    done
}

gcd() {
    local a=$1 b=$2
    while ((b)); do
        ((a %= b, a ^= b, b ^= a, a ^= b)) || true
    done
    echo "$a"
}

fibonacci() {
    local a=0 b=1 i next
    for ((i = 0; i < $1; i++)); do
        next=$((a + b)) a=$b b=$next
    done
    echo "$a"
}

collatz() {
    local n=$1
    terms=("$n")
    while ((n != 1)); do
        ((n = n % 2 ? 3 * n + 1 : n / 2))
        terms+=("$n")
    done
}

to_base() {
    local n=$1 base=$2 digits=0123456789abcdefghijklmnopqrstuvwxyz out=
    while ((n > 0)); do
        out=${digits:n % base:1}$out
        ((n /= base)) || true
    done
    echo "${out:-0}"
}

sieve 10000
echo "primes below 10000: ${#primes[@]}, first: ${primes[*]:0:10}, last: ${primes[-1]}"
echo "gcd: $(gcd 1071 462)"
echo "fib(90): $(fibonacci 90)"
collatz 27
echo "collatz 27: ${#terms[@]} terms, ending ${terms[*]: -4}"
echo "bases: $(to_base 255 2) $(to_base 255 16) $(to_base 1295 36) $((16#ff)) $((2#1010)) $((36#zz))"
echo "bits: $((0xF0 >> 4)) $((5 & 3)) $((5 | 3)) $((5 ^ 3)) $((~5)) $((2 ** 62))"
echo "signs: $((-7 / 2)) $((-7 % 2)) $((9223372036854775807 + 1))"
