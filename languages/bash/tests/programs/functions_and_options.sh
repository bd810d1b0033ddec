# Language features: getopts, namerefs, local scope, recursion, case patterns, here-strings, arithmetic.
set -euo pipefail
shopt -s extglob

usage() { echo "usage: $1 [-v] [-n count] word..."; }

parse() {
    local OPTIND=1 option verbose=no count=1
    while getopts ':vn:' option; do
        case $option in
            v) verbose=yes ;;
            n) count=$OPTARG ;;
            :) echo "-$OPTARG needs a value"; return 2 ;;
            *) echo "unknown -$OPTARG"; usage parse; return 2 ;;
        esac
    done
    shift $((OPTIND - 1))
    echo "verbose=$verbose count=$count words=$# first=${1:-none}"
}

parse -v -n 3 alpha 'two words'
parse || true
parse -n || echo "status $?"
parse -x || echo "status $?"

swap() {
    local -n left=$1 right=$2
    local held=$left
    left=$right right=$held
}
x=1 y=2
swap x y
echo "x=$x y=$y"

hanoi() {
    (($1 > 0)) || return 0
    hanoi $(($1 - 1)) "$2" "$4" "$3"
    moves=$((moves + 1))
    hanoi $(($1 - 1)) "$4" "$3" "$2"
}
moves=0
hanoi 8 a c b
echo "hanoi: $moves"

classify() {
    case $1 in
        +([0-9])) echo number ;;
        [A-Z]*) echo capital ;;
        *.@(jpg|png)) echo image ;;
        ?) echo single ;;
        *) echo other ;;
    esac
}
for word in 42 Hello cat.png x dog; do printf '%s=%s ' "$word" "$(classify "$word")"; done
echo

for i in {1..15}; do
    word=
    ((i % 3)) || word+=Fizz
    ((i % 5)) || word+=Buzz
    printf '%s ' "${word:-$i}"
done
echo

outer() { local value=outer; inner; echo "after inner: $value"; }
inner() { value=changed; }
value=global
outer
echo "global: $value"
echo {a..c}{1..2} "$(printf '%s|' {01..03})" "$(printf '%05.1f %x %o %e' 3.14159 255 8 12345.678)"
select_longest() { local word longest=; for word; do ((${#word} > ${#longest})) && longest=$word; done; echo "$longest"; }
select_longest fig banana kiwi
