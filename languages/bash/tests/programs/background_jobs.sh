# Processes: background jobs, wait and exit codes, pipes, process substitution, traps, coprocesses.
set -uo pipefail

sleep 30 & sleeper=$!
kill -TERM "$sleeper"
wait "$sleeper" 2> /dev/null
echo "killed: $(($? - 128))"

folder=$(mktemp -d)
cleanup() {
    rm -rf "$folder"
    echo "cleaned up"
}
trap cleanup EXIT

count_primes() {
    local n d count=0
    for ((n = $1 < 2 ? 2 : $1; n < $2; n++)); do
        for ((d = 2; d * d <= n; d++)); do ((n % d)) || continue 2; done
        count=$((count + 1))
    done
    echo "$count"
}

for part in 0 1 2 3; do
    count_primes $((part * 250)) $((part * 250 + 250)) > "$folder/$part" &
done
wait
total=0
for part in "$folder"/?; do
    read -r count < "$part"
    total=$((total + count))
done
echo "primes below 1000: $total"

(exit 3) & first=$!
(exit 0) & second=$!
wait "$first"
echo "first: $?"
wait "$second"
echo "second: $?"

seq 5 | grep -v 3 | { read -r head; echo "head $head, rest $(paste -sd ,)"; }
false | true
echo "pipeline: $?, parts: $(true | false | true; echo "${PIPESTATUS[*]}")"
diff <(printf '%s\n' a b c) <(printf '%s\n' a x c) | grep -c '^[<>]'

coproc UPPER { while read -r line; do echo "${line^^}"; done; }
echo "through a coprocess" >&"${UPPER[1]}"
read -r answer <&"${UPPER[0]}"
echo "$answer"
exec {UPPER[1]}>&-

mkfifo "$folder/pipe"
seq 1 100 > "$folder/pipe" &
sum=0
while read -r n; do sum=$((sum + n)); done < "$folder/pipe"
echo "sum through a named pipe: $sum"

trap 'echo "got USR1"' USR1
kill -USR1 $$
