# Arbitrary precision with arrays of nine-digit limbs: factorials, powers of two, Fibonacci numbers.
set -euo pipefail

readonly BASE=1000000000

# Numbers are arrays of limbs, least significant first, passed by name.
multiply() {
    local -n number=$1
    local factor=$2 carry=0 i value
    for ((i = 0; i < ${#number[@]} || carry; i++)); do
        value=$((${number[i]:-0} * factor + carry))
        number[i]=$((value % BASE))
        carry=$((value / BASE))
    done
}

add() {
    local -n target=$1 other=$2
    local carry=0 i value
    for ((i = 0; i < ${#target[@]} || i < ${#other[@]} || carry; i++)); do
        value=$((${target[i]:-0} + ${other[i]:-0} + carry))
        target[i]=$((value % BASE))
        carry=$((value / BASE))
    done
}

text() {
    local -n limbs=$1
    local i out=${limbs[-1]}
    for ((i = ${#limbs[@]} - 2; i >= 0; i--)); do
        printf -v out '%s%09d' "$out" "${limbs[i]}"
    done
    echo "$out"
}

digit_sum() {
    local digits=$1 sum=0 i
    for ((i = 0; i < ${#digits}; i++)); do
        sum=$((sum + ${digits:i:1}))
    done
    echo "$sum"
}

factorial=(1)
for ((n = 1; n <= 100; n++)); do
    multiply factorial "$n"
    ((n != 25)) || echo "25! = $(text factorial)"
done
digits=$(text factorial)
echo "100! has ${#digits} digits, sum $(digit_sum "$digits")"

power=(1)
for ((n = 0; n < 1000; n += 20)); do multiply power $((1 << 20)); done
echo "digit sum of 2^1000: $(digit_sum "$(text power)")"

a=(0) b=(1)
for ((n = 1; n <= 300; n++)); do
    add a b
    next=("${a[@]}") a=("${b[@]}") b=("${next[@]}")
    ((n != 90 && n != 300)) || echo "fib($n) = $(text a)"
done
