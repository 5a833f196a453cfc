//! Kubernetes quantities (`500m`, `0.5Gi`, `1e3`) as exact numbers, for comparison and for arithmetic on room.
//!
//! Kept as billionths in 128 bits: every quantity that the API accepts fits, down to its finest step.

use serde_json::Value;

/// An amount, in billionths of its unit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Quantity(i128);

const NANO: i128 = 1_000_000_000;

impl Quantity {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// A whole number of units (bytes, pods, cores).
    pub const fn whole(units: i64) -> Self {
        Self(units as i128 * NANO)
    }

    /// A number of thousandths (of a core).
    pub const fn milli(thousandths: i64) -> Self {
        Self(thousandths as i128 * (NANO / 1000))
    }

    /// Reads the text of a quantity; `None` where it is not one.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        let end = text
            .find(|letter: char| !(letter.is_ascii_digit() || matches!(letter, '.' | '+' | '-')))
            .unwrap_or(text.len());
        let (number, suffix) = text.split_at(end);
        let scale = Scale::parse(suffix)?;
        let (negative, digits) = match number.strip_prefix('-') {
            Some(rest) => (true, rest),
            None => (false, number.strip_prefix('+').unwrap_or(number)),
        };
        let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
        if (whole.is_empty() && fraction.is_empty())
            || fraction.contains(['+', '-'])
            || whole.contains(['+', '-'])
        {
            return None;
        }
        let digits: i128 = format!("0{whole}{fraction}").parse().ok()?;
        let places = u32::try_from(fraction.len()).ok()?;
        let amount = scale.apply(digits, places)?;
        Some(Self(if negative { -amount } else { amount }))
    }

    /// Reads a JSON value as the API accepts it: the text of a quantity, or a bare number.
    pub fn from_json(value: &Value) -> Option<Self> {
        match value {
            Value::String(text) => Self::parse(text),
            Value::Number(number) => Self::parse(&number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }

    /// The amount in thousandths, rounded up as the scheduler does.
    pub fn as_milli(self) -> i64 {
        let step = NANO / 1000;
        i64::try_from(self.0.div_euclid(step) + i128::from(self.0.rem_euclid(step) != 0)).unwrap_or(i64::MAX)
    }

    /// The amount in whole units, rounded up.
    pub fn as_whole(self) -> i64 {
        i64::try_from(self.0.div_euclid(NANO) + i128::from(self.0.rem_euclid(NANO) != 0)).unwrap_or(i64::MAX)
    }

    /// The sum, held at the largest amount.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, held at nothing.
    #[must_use]
    pub fn minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0).max(0))
    }
}

enum Scale {
    Binary(u32),
    Decimal(i32),
}

impl Scale {
    fn parse(suffix: &str) -> Option<Self> {
        Some(match suffix {
            "" => Self::Decimal(0),
            "n" => Self::Decimal(-9),
            "u" => Self::Decimal(-6),
            "m" => Self::Decimal(-3),
            "k" => Self::Decimal(3),
            "M" => Self::Decimal(6),
            "G" => Self::Decimal(9),
            "T" => Self::Decimal(12),
            "P" => Self::Decimal(15),
            "E" => Self::Decimal(18),
            "Ki" => Self::Binary(10),
            "Mi" => Self::Binary(20),
            "Gi" => Self::Binary(30),
            "Ti" => Self::Binary(40),
            "Pi" => Self::Binary(50),
            "Ei" => Self::Binary(60),
            exponent => Self::Decimal(exponent.strip_prefix(['e', 'E'])?.parse().ok()?),
        })
    }

    /// `digits` with `places` of them behind the point, times this scale, in billionths, rounded up.
    fn apply(&self, digits: i128, places: u32) -> Option<i128> {
        let divisor = 10_i128.checked_pow(places)?;
        match *self {
            Self::Binary(bits) => {
                let scaled = digits.checked_mul(NANO)?.checked_mul(1_i128 << bits)?;
                Some(divide_up(scaled, divisor))
            }
            Self::Decimal(power) => {
                let scaled = digits.checked_mul(NANO)?;
                let factor = 10_i128.checked_pow(power.unsigned_abs())?;
                if power >= 0 {
                    Some(divide_up(scaled.checked_mul(factor)?, divisor))
                } else {
                    Some(divide_up(scaled, divisor.checked_mul(factor)?))
                }
            }
        }
    }
}

const fn divide_up(amount: i128, divisor: i128) -> i128 {
    amount / divisor + if amount % divisor == 0 { 0 } else { 1 }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{any, prop_assert_eq, proptest};

    use super::Quantity;

    #[test]
    fn the_ways_to_write_one_amount_are_equal() {
        for (left, right) in [
            ("1000m", "1"),
            ("1.0", "1"),
            ("0.5Gi", "512Mi"),
            ("1e3", "1k"),
            ("1E3", "1000"),
            ("1500m", "1.5"),
            ("+2", "2"),
            (".5", "500m"),
            ("1E", "1000P"),
        ] {
            assert_eq!(Quantity::parse(left), Quantity::parse(right), "{left} and {right}");
            assert!(Quantity::parse(left).is_some(), "{left}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_refused() {
        for text in ["", "m", "1.2.3", "abc", "1x", "1 Gi", "--1", "1e", "1-2"] {
            assert_eq!(Quantity::parse(text), None, "{text:?}");
        }
    }

    #[test]
    fn a_bare_json_number_counts() {
        assert_eq!(Quantity::from_json(&serde_json::json!(0.5)), Quantity::parse("500m"));
        assert_eq!(Quantity::from_json(&serde_json::json!(true)), None);
    }

    proptest! {
        #[test]
        fn thousandths_survive(thousandths in any::<u32>()) {
            let read = Quantity::parse(&format!("{thousandths}m")).map(Quantity::as_milli);
            prop_assert_eq!(read, Some(i64::from(thousandths)));
        }

        #[test]
        fn nonsense_never_panics(text in ".{0,24}") {
            let _ = Quantity::parse(&text);
        }
    }
}
