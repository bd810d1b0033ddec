# Simulation: Game of Life on a torus, matrix powers, seeded random generators.
set -euo pipefail

readonly SIZE=6

show() {
    local row line
    for ((row = 0; row < SIZE; row++)); do
        line=${cells[*]:row * SIZE:SIZE}
        line=${line// /}
        line=${line//0/.}
        echo "${line//1/#}"
    done
}

generation() {
    local row column dr dc around at
    local -a next=()
    for ((row = 0; row < SIZE; row++)); do
        for ((column = 0; column < SIZE; column++)); do
            at=$((row * SIZE + column)) around=$((-cells[row * SIZE + column]))
            for dr in -1 0 1; do
                for dc in -1 0 1; do
                    ((around += cells[(row + dr + SIZE) % SIZE * SIZE + (column + dc + SIZE) % SIZE])) || true
                done
            done
            next[at]=$((around == 3 || (around == 2 && cells[at])))
        done
    done
    cells=("${next[@]}")
}

# 2x2 matrices as four words in row order.
multiply() {
    product=($(($1 * $5 + $2 * $7)) $(($1 * $6 + $2 * $8)) $(($3 * $5 + $4 * $7)) $(($3 * $6 + $4 * $8)))
}

fibonacci() {
    local n=$1
    local -a result=(1 0 0 1) base=(1 1 1 0)
    for (( ; n > 0; n >>= 1)); do
        if ((n & 1)); then
            multiply "${result[@]}" "${base[@]}"
            result=("${product[@]}")
        fi
        multiply "${base[@]}" "${base[@]}"
        base=("${product[@]}")
    done
    echo "${result[1]}"
}

cells=(0 1 0 0 0 0
       0 0 1 0 0 0
       1 1 1 0 0 0
       0 0 0 0 0 0
       0 0 0 0 0 0
       0 0 0 0 0 0)
start=${cells[*]}
for ((i = 1; i <= 24; i++)); do
    generation
    ((i != 4)) || show
done
[[ ${cells[*]} == "$start" ]] && echo "glider home after 24"

echo "fib(90): $(fibonacci 90)"
seed=1
for ((i = 0; i < 10000; i++)); do seed=$((seed * 16807 % 2147483647)); done
echo "10000th: $seed"

rolls=(0 0 0 0 0 0)
for ((i = 0; i < 6000; i++)); do
    seed=$((seed * 16807 % 2147483647))
    rolls[seed % 6]=$((rolls[seed % 6] + 1))
done
fair=yes
for count in "${rolls[@]}"; do ((count > 850 && count < 1150)) || fair=no; done
echo "fair die: $fair"
