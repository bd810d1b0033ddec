# Search and dynamic programming: breadth-first maze with the path drawn, edit distance, coins, queens.
set -euo pipefail

maze=('S.#.....' '..#.###.' '#.#...#.' '#.###.#.' '#.....#E')

solve_maze() {
    local width=${#maze[0]} height=${#maze[@]} at row column r c move to head
    local -a queue=(0) from=([0]=-1) moves=('1 0' '-1 0' '0 1' '0 -1')
    for ((head = 0; head < ${#queue[@]}; head++)); do
        at=${queue[head]} row=$((queue[head] / width)) column=$((queue[head] % width))
        [[ ${maze[row]:column:1} != E ]] || break
        for move in "${moves[@]}"; do
            r=$((row + ${move% *})) c=$((column + ${move#* }))
            to=$((r * width + c))
            ((r >= 0 && r < height && c >= 0 && c < width)) || continue
            [[ ${maze[r]:c:1} != '#' && -z ${from[to]:-} ]] || continue
            from[to]=$at
            queue+=("$to")
        done
    done
    local steps=0
    for ((; from[at] >= 0; at = from[at], steps++)); do
        row=$((at / width)) column=$((at % width))
        [[ ${maze[row]:column:1} == E ]] || maze[row]=${maze[row]:0:column}o${maze[row]:column + 1}
    done
    printf '%s\n' "${maze[@]}" "steps: $steps"
}

edit_distance() {
    local a=$1 b=$2 i j diagonal above cost
    local -a row=()
    for ((j = 0; j <= ${#b}; j++)); do row[j]=$j; done
    for ((i = 1; i <= ${#a}; i++)); do
        diagonal=${row[0]} row[0]=$i
        for ((j = 1; j <= ${#b}; j++)); do
            above=${row[j]} cost=$diagonal
            [[ ${a:i - 1:1} == "${b:j - 1:1}" ]] || cost=$((cost + 1))
            ((cost <= above + 1)) || cost=$((above + 1))
            ((cost <= row[j - 1] + 1)) || cost=$((row[j - 1] + 1))
            diagonal=$above row[j]=$cost
        done
    done
    echo "$1 -> $2: ${row[-1]}"
}

count_change() {
    local total=$1 coin amount
    local -a ways=(1)
    shift
    for coin; do
        for ((amount = coin; amount <= total; amount++)); do
            ((ways[amount] += ways[amount - coin])) || true
        done
    done
    echo "change: ${ways[total]}"
}

queens() {
    local size=$1 columns=$2 left=$3 right=$4 open bit
    ((columns != (1 << size) - 1)) || { solutions=$((solutions + 1)); return; }
    for ((open = ~(columns | left | right) & ((1 << size) - 1); open; open ^= bit)); do
        bit=$((open & -open))
        queens "$size" $((columns | bit)) $(((left | bit) << 1)) $(((right | bit) >> 1))
    done
}

solve_maze
edit_distance kitten sitting
edit_distance intention execution
count_change 200 1 2 5 10 20 50 100 200
solutions=0
queens 6 0 0 0
echo "queens: $solutions"
