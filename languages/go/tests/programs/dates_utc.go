// Dates and times in UTC: parsing, formatting, arithmetic, ISO weeks, durations, fixed zones.
package main

import (
	"fmt"
	"time"
)

func date(year int, month time.Month, day int) time.Time {
	return time.Date(year, month, day, 0, 0, 0, 0, time.UTC)
}

func friday13ths(year int) (months []time.Month) {
	for month := time.January; month <= time.December; month++ {
		if date(year, month, 13).Weekday() == time.Friday {
			months = append(months, month)
		}
	}
	return months
}

func sundays(from, to int) (count int) {
	for first := date(from, 1, 1); first.Year() <= to; first = first.AddDate(0, 1, 0) {
		if first.Weekday() == time.Sunday {
			count++
		}
	}
	return count
}

func main() {
	fmt.Println(time.Unix(1_000_000_000, 0).UTC())
	fmt.Println(time.Unix(1<<31, 0).UTC().Format(time.RFC1123))

	gap := date(2024, 2, 29).Sub(date(2000, 1, 1))
	fmt.Println("days:", gap.Hours()/24)
	fmt.Println("overflow:", date(2023, 2, 29).Format(time.DateOnly), date(2024, 14, 1).Format("Jan 2006"))
	fmt.Println("month end:", date(2024, 3, 0).Day())

	year, week := date(2021, 1, 3).ISOWeek()
	fmt.Printf("week: %d-W%02d, day %d of the year\n", year, week, date(2024, 12, 31).YearDay())
	fmt.Println("friday 13ths:", friday13ths(2026))
	fmt.Println("sundays:", sundays(1901, 2000))

	parsed, err := time.Parse("2 Jan 2006 15:04 -0700", "29 Feb 2024 23:30 +0530")
	if err != nil {
		panic(err)
	}
	fmt.Println("in UTC:", parsed.UTC().Format(time.RFC3339))
	tokyo := time.FixedZone("JST", 9*60*60)
	fmt.Println("in Tokyo:", parsed.In(tokyo).Format("Mon 15:04 MST"))
	fmt.Println("equal:", parsed.Equal(parsed.In(tokyo)), parsed.Truncate(time.Hour).UTC().Format(time.TimeOnly))

	span, _ := time.ParseDuration("1h15m30.918s")
	fmt.Println(span, span.Round(time.Minute), span.Seconds())
	_, err = time.Parse(time.DateOnly, "2023-02-29")
	fmt.Println(err)
}
