// Dates in UTC: gmtime, strftime, timegm, day numbers, weekdays, a printed calendar.
#define _DEFAULT_SOURCE
#include <stdio.h>
#include <string.h>
#include <time.h>

static int is_leap(int year) { return year % 4 == 0 && (year % 100 != 0 || year % 400 == 0); }

static int month_days(int year, int month) {
    static const int days[] = {31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31};
    return days[month - 1] + (month == 2 && is_leap(year));
}

// Days since 1970-01-01, by counting.
static long day_number(int year, int month, int day) {
    long days = day - 1;
    for (int y = 1970; y < year; y++) days += 365 + is_leap(y);
    for (int y = year; y < 1970; y++) days -= 365 + is_leap(y);
    for (int m = 1; m < month; m++) days += month_days(year, m);
    return days;
}

// 0 is Sunday; 1970-01-01 was a Thursday.
static int weekday(int year, int month, int day) { return (int)(((day_number(year, month, day) + 4) % 7 + 7) % 7); }

static void print_calendar(int year, int month) {
    int first = (weekday(year, month, 1) + 6) % 7;
    printf("Mo Tu We Th Fr Sa Su\n%*s", 3 * first, "");
    for (int day = 1; day <= month_days(year, month); day++) {
        int last_column = (first + day) % 7 == 0 || day == month_days(year, month);
        printf("%2d%c", day, last_column ? '\n' : ' ');
    }
}

static void show(time_t when, const char *format) {
    char text[64];
    struct tm tm;
    gmtime_r(&when, &tm);
    strftime(text, sizeof text, format, &tm);
    puts(text);
}

int main(void) {
    show(1000000000, "%Y-%m-%dT%H:%M:%SZ");
    show((time_t)1 << 31, "%a %d %b %Y %H:%M:%S, day %j");

    struct tm leap = {.tm_year = 124, .tm_mon = 1, .tm_mday = 29, .tm_hour = 18};
    time_t seconds = timegm(&leap);
    printf("seconds: %lld, weekday %d\n", (long long)seconds, leap.tm_wday);
    show(seconds + 86400, "%A %F, week %V of %G");
    struct tm overflow = {.tm_year = 123, .tm_mon = 13, .tm_mday = 30};
    show(timegm(&overflow), "overflow: %F");

    printf("agrees: %d\n", day_number(2024, 2, 29) * 86400 + 18 * 3600 == seconds);
    printf("days: %ld\n", day_number(2024, 2, 29) - day_number(2000, 1, 1));
    int sundays = 0;
    for (int year = 1901; year <= 2000; year++)
        for (int month = 1; month <= 12; month++) sundays += weekday(year, month, 1) == 0;
    printf("sundays: %d\n", sundays);
    print_calendar(2024, 2);
    return 0;
}
