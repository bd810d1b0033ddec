# Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}). What
# the function prints is compared with what is expected.
harness_token=$TEMPLATE_TOKEN
unset TEMPLATE_TOKEN

{{ code }}

harness_text() {
    local text=${1//\\/\\\\}
    text=${text//\"/\\\"}
    text=${text//$'\n'/\\n}
    text=${text//$'\t'/\\t}
    printf '"%s"' "$text"
}

harness_failed=0 harness_total=0
harness_case() {
    local expected=$1 actual code passed=false error=null
    shift
    actual=$({{ function }} "$@")
    code=$?
    [ $code = 0 ] || error="\"exited with code $code\""
    if [ "$actual" = "$expected" ] && [ $code = 0 ]; then passed=true; else harness_failed=$((harness_failed + 1)); fi
    printf '{"case":%d,"passed":%s,"expected":%s,"actual":%s,"error":%s}\n' "$harness_total" "$passed" \
        "$(harness_text "$expected")" "$(harness_text "$actual")" "$error"
    harness_total=$((harness_total + 1))
}

{% for case in cases %}
harness_case {{ case.expected | literal }}{% for arg in case.args %} {{ arg | literal }}{% endfor %}

{% endfor %}
[ $harness_failed = 0 ] || echo "$harness_failed of $harness_total cases failed" >&2
echo "$harness_token"
[ $harness_failed = 0 ]
