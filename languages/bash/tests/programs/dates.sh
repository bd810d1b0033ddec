# Dates in UTC: printf time formats, date arithmetic, day numbers, weekdays, a printed calendar.
set -euo pipefail
export TZ=UTC LC_ALL=C

is_leap() { (($1 % 4 == 0 && ($1 % 100 != 0 || $1 % 400 == 0))); }

# Days since 1970-01-01; years run from March so that the leap day comes last.
day_number() {
    local year=$1 month=$2 day=$3 era day_of_year
    ((month > 2)) || year=$((year - 1))
    era=$((year / 400))
    day_of_year=$(((153 * ((month + 9) % 12) + 2) / 5 + day - 1))
    ((year %= 400)) || true
    number=$((era * 146097 + year * 365 + year / 4 - year / 100 + day_of_year - 719468))
}

weekday() {
    day_number "$@"
    weekday=$(((number % 7 + 11) % 7))
}

calendar() {
    local year=$1 month=$2 lengths=(0 31 28 31 30 31 30 31 31 30 31 30 31) day
    ! is_leap "$year" || lengths[2]=29
    weekday "$year" "$month" 1
    local column=$(((weekday + 6) % 7))
    echo 'Mo Tu We Th Fr Sa Su'
    printf '%*s' $((3 * column)) ''
    for ((day = 1; day <= lengths[month]; day++)); do
        if ((++column % 7 == 0 || day == lengths[month])); then printf '%2d\n' "$day"; else printf '%2d ' "$day"; fi
    done
}

printf '%(%Y-%m-%dT%H:%M:%SZ)T\n' 1000000000
printf '%(%a %d %b %Y, day %j)T\n' $((2 ** 31))
date -u -d '2024-02-29 23:30 +0530' '+%F %T %A'
date -u -d '2024-02-28 + 2 days' +%F
date -u -d 2021-01-03 +%G-W%V-%u

day_number 2024 2 29
last=$number
day_number 2000 1 1
echo "days: $((last - number)), epoch day of leap day: $last"
echo "agrees: $(($(date -u -d 2024-02-29 +%s) / 86400 == last))"

sundays=0
for ((year = 1901; year <= 2000; year++)); do
    for ((month = 1; month <= 12; month++)); do
        weekday "$year" "$month" 1
        ((weekday)) || sundays=$((sundays + 1))
    done
done
echo "first-of-month sundays: $sundays"

leap=0
for ((year = 1900; year <= 2000; year++)); do ! is_leap "$year" || leap=$((leap + 1)); done
echo "leap years: $leap"
calendar 2024 2
