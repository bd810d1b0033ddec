// Runs a function on cases: {{ function }}. Variables: function, cases (a list of {"args": [...], "expected": ...}) and,
// if the code needs packages, imports (a list).
package main

import (
	harnessJSON "encoding/json"
	harnessFmt "fmt"
	harnessOS "os"
	harnessReflect "reflect"
{% for import in imports | default([]) %}
	{{ import | literal }}
{% endfor %}
)

{{ code }}

type harnessReport struct {
	Case     int  `json:"case"`
	Passed   bool `json:"passed"`
	Expected any  `json:"expected"`
	Actual   any  `json:"actual"`
	Error    any  `json:"error"`
}

func harnessCase(number int, expected any, call func() any) (report harnessReport) {
	report = harnessReport{Case: number, Expected: expected}
	defer func() {
		if problem := recover(); problem != nil {
			report.Error = harnessFmt.Sprint(problem)
		}
	}()
	report.Actual = call()
	report.Passed = harnessReflect.DeepEqual(report.Actual, expected)
	return
}

func main() {
	token := harnessOS.Getenv("TEMPLATE_TOKEN")
	harnessOS.Unsetenv("TEMPLATE_TOKEN")
	reports := []harnessReport{
{% for case in cases %}
		harnessCase({{ loop.index0 }}, {{ case.expected | literal }}, func() any { return {{ function }}({% for arg in case.args %}{{ arg | literal }}{% if not loop.last %}, {% endif %}{% endfor %}) }),
{% endfor %}
	}
	failed := 0
	for _, report := range reports {
		if !report.Passed {
			failed++
		}
		line, problem := harnessJSON.Marshal(report)
		if problem != nil {
			report.Actual = harnessFmt.Sprint(report.Actual)
			line, _ = harnessJSON.Marshal(report)
		}
		harnessFmt.Println(string(line))
	}
	if failed > 0 {
		harnessFmt.Fprintf(harnessOS.Stderr, "%d of %d cases failed\n", failed, len(reports))
	}
	harnessFmt.Println(token)
	if failed > 0 {
		harnessOS.Exit(1)
	}
}
