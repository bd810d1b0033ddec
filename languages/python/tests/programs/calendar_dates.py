# Dates and times in UTC: parsing, arithmetic, ISO weeks, calendars, fixed offsets.
import calendar
from datetime import date, datetime, timedelta, timezone


def easter(year):
    """The anonymous Gregorian algorithm."""
    a, b, c = year % 19, year // 100, year % 100
    d, e = divmod(b, 4)
    g = (8 * b + 13) // 25
    h = (19 * a + b - d - g + 15) % 30
    i, k = divmod(c, 4)
    m = (32 + 2 * e + 2 * i - h - k) % 7
    n = (a + 11 * h + 22 * m) // 451
    month, day = divmod(h + m - 7 * n + 114, 31)
    return date(year, month, day + 1)


def friday_13ths(year):
    return [m for m in range(1, 13) if date(year, m, 13).weekday() == calendar.FRIDAY]


billion = datetime.fromtimestamp(1_000_000_000, tz=timezone.utc)
print("billion:", billion.isoformat())
print("2**31:", datetime.fromtimestamp(2**31, tz=timezone.utc).strftime("%Y-%m-%d %H:%M:%S"))
print("days:", (date(2024, 2, 29) - date(2000, 1, 1)).days)
print("leap years 1900-2000:", calendar.leapdays(1900, 2001))
print("iso week of 2021-01-03:", tuple(date(2021, 1, 3).isocalendar()))
print("friday 13ths in 2026:", friday_13ths(2026))
sundays = sum(date(y, m, 1).isoweekday() == 7 for y in range(1901, 2001) for m in range(1, 13))
print("first-of-month sundays 1901-2000:", sundays)
print("easter:", *(easter(year) for year in (2000, 2024, 2025)))

parsed = datetime.strptime("29 Feb 2024 23:30 +0530", "%d %b %Y %H:%M %z")
print("in UTC:", parsed.astimezone(timezone.utc))
print("in New York (-05:00):", parsed.astimezone(timezone(timedelta(hours=-5))))
print("a week and a day later:", (parsed + timedelta(weeks=1, days=1)).date())
print("weekday:", parsed.strftime("%A"))
