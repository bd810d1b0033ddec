# Word frequencies of standard input with associative arrays and a pipeline for sorting.
set -euo pipefail

declare -A counts
total=0

while read -r line || [[ -n $line ]]; do
    line=${line,,}
    read -ra words <<< "${line//[^a-z ]/ }"
    for word in "${words[@]}"; do
        counts[$word]=$((${counts[$word]:-0} + 1))
        total=$((total + 1))
    done
done

printf '%d words, %d distinct\n' "$total" "${#counts[@]}"
for word in "${!counts[@]}"; do
    printf '%d %s\n' "${counts[$word]}" "$word"
done | LC_ALL=C sort -k1,1nr -k2 | head -n 5 | while read -r count word; do
    printf -v bar '%*s' "$count" ''
    printf '%-6s %d %s\n' "$word" "$count" "${bar// /#}"
done
