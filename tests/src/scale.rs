//! How large a story is: in a test, or where somebody has asked for more.

use std::str::FromStr;

/// The number in a variable of the environment; where it is not set, or empty, the one of a test.
///
/// # Panics
/// It is there and is no such number.
#[must_use]
pub fn of<Number: FromStr>(variable: &str, in_test: Number) -> Number {
    let asked = std::env::var(variable).ok().filter(|text| !text.is_empty());
    asked.map_or(in_test, |text| {
        text.parse().unwrap_or_else(|_| panic!("{variable} is {text:?}, which is no number of that kind"))
    })
}
