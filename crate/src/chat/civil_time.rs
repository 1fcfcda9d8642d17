//! Calendar dates from a count of seconds, for the templates that tell the model today's date. No clock and no time zone in here: the
//! caller knows both.

use minijinja::{Error, ErrorKind};

const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// From Thursday on, the day of 1970-01-01.
const WEEKDAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];

const SECONDS_PER_DAY: i64 = 24 * 60 * 60;

/// A date and a time of day in the proleptic Gregorian calendar.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CivilTime {
    year: i64,
    /// 1 to 12.
    month: usize,
    /// 1 to 31.
    day: i64,
    /// 1 to 366.
    day_of_year: i64,
    /// 0 for Thursday.
    weekday: usize,
    hour: i64,
    minute: i64,
    second: i64,
}

impl CivilTime {
    /// From the seconds since 1970-01-01 00:00:00 in the same time zone.
    pub fn from_seconds(seconds: i64) -> Self {
        let mut days_left = seconds.div_euclid(SECONDS_PER_DAY);
        let weekday = days_left.rem_euclid(7) as usize;
        // 400 years have a whole number of days; the loops below then have little to do.
        const DAYS_PER_400_YEARS: i64 = 146_097;
        let mut year = 1970 + 400 * days_left.div_euclid(DAYS_PER_400_YEARS);
        days_left = days_left.rem_euclid(DAYS_PER_400_YEARS);
        while days_left >= days_in_year(year) {
            days_left -= days_in_year(year);
            year += 1;
        }
        let day_of_year = days_left + 1;
        let mut month = 1;
        while days_left >= days_in_month(year, month) {
            days_left -= days_in_month(year, month);
            month += 1;
        }
        let second_of_day = seconds.rem_euclid(SECONDS_PER_DAY);
        CivilTime {
            year,
            month,
            day: days_left + 1,
            day_of_year,
            weekday,
            hour: second_of_day / 3600,
            minute: second_of_day / 60 % 60,
            second: second_of_day % 60,
        }
    }

    /// This in the form that `format` asks for, as Python's `strftime` in the C locale writes it.
    ///
    /// # Errors
    /// For a directive that is not one of `aAbBdeFHIjmMpSTyY%`, after `-` or not.
    pub fn strftime(&self, format: &str) -> Result<String, Error> {
        let mut text = String::new();
        let mut characters = format.chars();
        while let Some(character) = characters.next() {
            if character != '%' {
                text.push(character);
                continue;
            }
            let mut directive = characters.next();
            let padded = directive != Some('-');
            if !padded {
                directive = characters.next();
            }
            let number = |value: i64, width: usize| match padded {
                true => format!("{value:0width$}"),
                false => value.to_string(),
            };
            let hour_of_12 = (self.hour + 11) % 12 + 1;
            let (month, weekday) = (MONTHS[self.month - 1], WEEKDAYS[self.weekday]);
            let part = match directive {
                Some('Y') => self.year.to_string(),
                Some('y') => number(self.year.rem_euclid(100), 2),
                Some('m') => number(self.month as i64, 2),
                Some('B') => month.to_string(),
                Some('b') => month[..3].to_string(),
                Some('d') => number(self.day, 2),
                Some('e') => format!("{:2}", self.day),
                Some('j') => number(self.day_of_year, 3),
                Some('A') => weekday.to_string(),
                Some('a') => weekday[..3].to_string(),
                Some('H') => number(self.hour, 2),
                Some('I') => number(hour_of_12, 2),
                Some('M') => number(self.minute, 2),
                Some('S') => number(self.second, 2),
                Some('p') => if self.hour < 12 { "AM" } else { "PM" }.to_string(),
                Some('F') => self.strftime("%Y-%m-%d")?,
                Some('T') => self.strftime("%H:%M:%S")?,
                Some('%') => "%".to_string(),
                _ => {
                    return Err(Error::new(
                        ErrorKind::InvalidOperation,
                        format!("strftime_now: {format:?} holds an unknown directive"),
                    ));
                }
            };
            text.push_str(&part);
        }
        Ok(text)
    }
}

fn is_leap(year: i64) -> bool {
    year % 4 == 0 && (year % 100 != 0 || year % 400 == 0)
}

fn days_in_year(year: i64) -> i64 {
    if is_leap(year) { 366 } else { 365 }
}

fn days_in_month(year: i64, month: usize) -> i64 {
    match month {
        2 => 28 + i64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expected texts are what Python's `datetime.fromtimestamp(seconds, timezone.utc).strftime` writes.
    #[test]
    fn dates_are_what_python_writes() {
        let format = "%Y-%m-%d %H:%M:%S %a %A %b %B %j %y %I %p %-d %-m %e %F %T %%";
        let cases = [
            (0, "1970-01-01 00:00:00 Thu Thursday Jan January 001 70 12 AM 1 1  1 1970-01-01 00:00:00 %"),
            (951782400, "2000-02-29 00:00:00 Tue Tuesday Feb February 060 00 12 AM 29 2 29 2000-02-29 00:00:00 %"),
            (1722013323, "2024-07-26 17:02:03 Fri Friday Jul July 208 24 05 PM 26 7 26 2024-07-26 17:02:03 %"),
            (1735689599, "2024-12-31 23:59:59 Tue Tuesday Dec December 366 24 11 PM 31 12 31 2024-12-31 23:59:59 %"),
            (4107542399, "2100-02-28 23:59:59 Sun Sunday Feb February 059 00 11 PM 28 2 28 2100-02-28 23:59:59 %"),
            (-1, "1969-12-31 23:59:59 Wed Wednesday Dec December 365 69 11 PM 31 12 31 1969-12-31 23:59:59 %"),
            (-31536000, "1969-01-01 00:00:00 Wed Wednesday Jan January 001 69 12 AM 1 1  1 1969-01-01 00:00:00 %"),
        ];
        for (seconds, expected) in cases {
            let text = CivilTime::from_seconds(seconds).strftime(format).unwrap();
            assert_eq!(text, expected);
        }
    }

    #[test]
    fn no_count_of_seconds_and_no_format_panics() {
        for seconds in [i64::MIN, i64::MAX] {
            CivilTime::from_seconds(seconds).strftime("%F").unwrap();
        }
        for format in ["%", "%-", "%Q", "%-é"] {
            assert!(CivilTime::from_seconds(0).strftime(format).is_err());
        }
    }
}
