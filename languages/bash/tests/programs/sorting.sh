# Arrays and recursion: quicksort, merge sort, binary search, a stack and a queue, slices.
set -euo pipefail

quick_sort() {
    (($# > 0)) || { sorted=(); return; }
    local pivot=$1 item
    local -a lower=() upper=() left
    shift
    for item; do
        if ((item < pivot)); then lower+=("$item"); else upper+=("$item"); fi
    done
    quick_sort "${lower[@]}"
    left=("${sorted[@]}")
    quick_sort "${upper[@]}"
    sorted=("${left[@]}" "$pivot" "${sorted[@]}")
}

merge_sort() {
    if (($# < 2)); then
        sorted=("$@")
        return
    fi
    local half=$(($# / 2)) i=0 j=0
    local -a left right merged=()
    merge_sort "${@:1:half}"
    left=("${sorted[@]}")
    merge_sort "${@:half + 1}"
    right=("${sorted[@]}")
    while ((i < ${#left[@]} && j < ${#right[@]})); do
        if ((left[i] <= right[j])); then merged+=("${left[i++]}"); else merged+=("${right[j++]}"); fi
    done
    sorted=("${merged[@]}" "${left[@]:i}" "${right[@]:j}")
}

binary_search() {
    local -n array=$1
    local wanted=$2 low=0 high=$((${#array[@]} - 1)) middle
    while ((low <= high)); do
        middle=$(((low + high) / 2))
        if ((array[middle] == wanted)); then
            echo "$middle"
            return
        elif ((array[middle] < wanted)); then
            low=$((middle + 1))
        else
            high=$((middle - 1))
        fi
    done
    return 1
}

numbers=(42 7 19 3 88 7 0 -5 61 23)
quick_sort "${numbers[@]}"
echo "quick: ${sorted[*]}"
merge_sort "${numbers[@]}"
echo "merge: ${sorted[*]}"
echo "61 at $(binary_search sorted 61), 62 $(binary_search sorted 62 || echo missing)"

stack=(a b)
stack+=(c)
top=${stack[-1]}
unset 'stack[-1]'
echo "popped $top, left ${stack[*]}"
queue=(x y z)
echo "first ${queue[0]}, then ${queue[*]:1}, reversed $(printf '%s\n' "${queue[@]}" | tac | paste -sd ' ')"

sparse=([2]=two [5]=five)
echo "sparse: ${!sparse[*]} -> ${sparse[*]}, ${#sparse[@]} items"
