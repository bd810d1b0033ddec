# Regular expressions and parameter expansion: log parsing, splitting, trimming, case, substitution.
set -euo pipefail

pattern='^([0-9.]+) \[([^]]+)\] "([A-Z]+) ([^ ?"]+)(\?[^ ]*)? [^"]*" ([0-9]{3}) ([0-9]+)$'
declare -A bytes statuses
bad=0

while IFS= read -r line; do
    if [[ $line =~ $pattern ]]; then
        path=${BASH_REMATCH[4]} query=${BASH_REMATCH[5]} status=${BASH_REMATCH[6]}
        bytes[$path]=$((${bytes[$path]:-0} + BASH_REMATCH[7]))
        statuses[$status]=$((${statuses[$status]:-0} + 1))
        [[ -z $query ]] || echo "query ${query#\?} from ${BASH_REMATCH[1]}"
    else
        bad=$((bad + 1))
    fi
done << 'LOG'
10.0.0.1 [01/Mar/2024:10:00:00] "GET /index.html HTTP/1.1" 200 512
10.0.0.2 [01/Mar/2024:10:00:01] "POST /api/items HTTP/1.1" 201 64
10.0.0.1 [01/Mar/2024:10:00:02] "GET /missing HTTP/1.1" 404 0
this line is damaged
10.0.0.3 [01/Mar/2024:10:00:05] "GET /api/items?id=7 HTTP/1.1" 200 2048
LOG

for path in "${!bytes[@]}"; do
    printf '%-12s|%6d|\n' "$path" "${bytes[$path]}"
done | LC_ALL=C sort
echo "ok: ${statuses[200]}, missing: ${statuses[404]}, bad lines: $bad"

file=srv/data/archive.tar.gz
echo "${file##*/} ${file%/*} ${file%%.*} ${file#*.} ${file/data/backup}"

text='  padded text  '
text=${text#"${text%%[! ]*}"}
text=${text%"${text##*[! ]}"}
echo "[$text] ${#text} ${text^} ${text^^} ${text:0:3} ${text: -4}"

snake=parse_http_header camel=
IFS=_ read -ra parts <<< "$snake"
for part in "${parts[@]}"; do camel+=${part^}; done
echo "$camel ${camel,} $(IFS=-; echo "${parts[*]}")"

unset missing
echo "${missing:-default} ${missing+set} ${snake:+present} ${#parts[@]}"
echo "2024-02-29" | sed -E 's/([0-9]+)-([0-9]+)-([0-9]+)/\3.\2.\1/'
echo "a1b22c333" | grep -oE '[a-z][0-9]+' | paste -sd ,
printf '%s\n' 'x=1; rm' "it's" | while IFS= read -r word; do printf '%q\n' "$word"; done
