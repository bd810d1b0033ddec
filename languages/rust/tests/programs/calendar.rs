// Date arithmetic without a library: civil dates to day numbers and back, weekdays, ISO 8601 parsing.
use std::fmt;
use std::str::FromStr;
use std::time::{Duration, UNIX_EPOCH};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Date {
    year: i64,
    month: i64,
    day: i64,
}

impl Date {
    fn new(year: i64, month: i64, day: i64) -> Self {
        Date { year, month, day }
    }

    /// Days since 1970-01-01; the year is counted from March so that leap days come last.
    fn to_days(self) -> i64 {
        let year = if self.month <= 2 { self.year - 1 } else { self.year };
        let day_of_year = (153 * ((self.month + 9) % 12) + 2) / 5 + self.day - 1;
        let (era, year) = (year.div_euclid(400), year.rem_euclid(400));
        era * 146_097 + year * 365 + year / 4 - year / 100 + day_of_year - 719_468
    }

    fn from_days(days: i64) -> Self {
        let (era, day) = ((days + 719_468).div_euclid(146_097), (days + 719_468).rem_euclid(146_097));
        let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
        let day_of_year = day - (365 * year + year / 4 - year / 100);
        let shifted = (5 * day_of_year + 2) / 153;
        let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
        Date::new(era * 400 + year + i64::from(month <= 2), month, day_of_year - (153 * shifted + 2) / 5 + 1)
    }

    fn weekday(self) -> &'static str {
        ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][self.to_days().rem_euclid(7) as usize]
    }
}

impl fmt::Display for Date {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

impl FromStr for Date {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts: Result<Vec<i64>, _> = text.split('-').map(str::parse).collect();
        match parts.map_err(|e| format!("{text}: {e}"))?[..] {
            [year, month, day] if Date::from_days(Date::new(year, month, day).to_days()).day == day => {
                Ok(Date::new(year, month, day))
            }
            _ => Err(format!("{text}: no such day")),
        }
    }
}

fn main() {
    println!("{} {}", Date::from_days(0), Date::new(1969, 7, 20).to_days());
    println!("days: {}", Date::new(2024, 2, 29).to_days() - Date::new(2000, 1, 1).to_days());
    println!("round trip: {}", (-800_000..800_000).step_by(7).all(|d| Date::from_days(d).to_days() == d));
    let firsts = (1901..=2000).flat_map(|y| (1..=12).map(move |m| Date::new(y, m, 1)));
    println!("sundays: {}", firsts.filter(|d| d.weekday() == "Sun").count());
    for text in ["2024-02-29", "2023-02-29", "2024-13-x"] {
        match text.parse::<Date>() {
            Ok(date) => println!("{} {date}, then {}", date.weekday(), Date::from_days(date.to_days() + 1)),
            Err(error) => println!("{error}"),
        }
    }
    let time = UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    let seconds = time.duration_since(UNIX_EPOCH).unwrap().as_secs() as i64;
    println!("{} {:02}:{:02}", Date::from_days(seconds / 86_400), seconds / 3600 % 24, seconds / 60 % 60);
}
