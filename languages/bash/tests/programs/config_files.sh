# Files: writing and reading an INI file, updating in place, CSV totals, temporary folders, globbing.
set -euo pipefail
shopt -s nullglob

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat > server.ini << 'INI'
; servers
[web]
port = 8080
hosts = alpha, beta

[database]
port=5432
name = "main db"
INI

declare -A config
parse_ini() {
    local section= line key value number=0
    while IFS= read -r line; do
        number=$((number + 1))
        case $line in
            '' | ';'*) ;;
            '['*']') section=${line:1:-1} ;;
            *=*)
                key=${line%%=*} value=${line#*=}
                read -r key <<< "$key"
                read -r value <<< "$value"
                value=${value#\"} value=${value%\"}
                config[$section.$key]=$value
                ;;
            *) echo "line $number: cannot parse '$line'" ;;
        esac
    done < "$1"
}

parse_ini server.ini
for key in "${!config[@]}"; do echo "$key -> ${config[$key]}"; done | LC_ALL=C sort

sed -i 's/^port *= *8080/port = 9090/' server.ini
echo nonsense >> server.ini
parse_ini server.ini
echo "web.port is now ${config[web.port]}, lines: $(wc -l < server.ini)"

printf '%s\n' 'city,celsius' 'Oslo,-3' 'Cairo,31' 'Lima,19' 'Oslo,5' 'Cairo,27' > cities.csv
declare -A sum count
{
    read -r _
    while IFS=, read -r city celsius; do
        sum[$city]=$((${sum[$city]:-0} + celsius))
        count[$city]=$((${count[$city]:-0} + 1))
    done
} < cities.csv
for city in Cairo Lima Oslo; do
    echo "$city ${count[$city]} $((sum[$city] / count[$city]))"
done

mkdir -p nested/deep
touch nested/{a,b}.txt nested/deep/c.txt
for file in nested/*.txt *.none; do echo "$file"; done
find nested -type f | LC_ALL=C sort | tail -n 1
[[ -d nested && -s server.ini && ! -s nested/a.txt ]] && echo "tests hold"
cmp -s nested/a.txt nested/b.txt && echo "same contents"
mapfile -t lines < cities.csv
echo "${#lines[@]} lines, last ${lines[-1]}"
