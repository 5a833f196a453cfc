//! `maxSurge` and `maxUnavailable`: numbers or percentages. Pure.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// What an absent step means.
const DEFAULT: Step = Step::Percent(25);

/// How far a rolling update may go at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Number(i32),
    Percent(i32),
}

/// A step that makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is neither a number from 1 nor a percentage from 1% to 99%")]
pub(super) struct StepError(String);

impl Step {
    /// Reads what is written; text is a percentage with or without its sign.
    pub(super) fn read(written: Option<&IntOrString>) -> Result<Self, StepError> {
        match written {
            None => Ok(DEFAULT),
            Some(IntOrString::Int(number)) if *number >= 1 => Ok(Self::Number(*number)),
            Some(IntOrString::Int(number)) => Err(StepError(number.to_string())),
            Some(IntOrString::String(text)) => {
                let percent = text.strip_suffix('%').unwrap_or(text).parse::<i32>().ok();
                let percent = percent.filter(|percent| (1..=99).contains(percent));
                percent.map(Self::Percent).ok_or_else(|| StepError(text.clone()))
            }
        }
    }

    /// Reads an annotation, which has no type but text: a number without a sign is a number.
    pub(super) fn read_text(text: &str) -> Result<Self, StepError> {
        let written = text.parse().map_or_else(|_| IntOrString::String(text.to_owned()), IntOrString::Int);
        Self::read(Some(&written))
    }

    /// Servers, of so many, rounded up.
    pub(super) fn up(self, of: i32) -> i32 {
        self.of(of, 99)
    }

    /// Servers, of so many, rounded down.
    pub(super) fn down(self, of: i32) -> i32 {
        self.of(of, 0)
    }

    fn of(self, of: i32, rounding: i64) -> i32 {
        match self {
            Self::Number(number) => number,
            Self::Percent(percent) => {
                let hundredths = i64::from(percent) * i64::from(of.max(0)) + rounding;
                i32::try_from(hundredths / 100).unwrap_or(i32::MAX)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_makes_sense_is_read() {
        let text = |text: &str| Some(IntOrString::String(text.to_owned()));
        let rows = [
            (text("100%"), None),
            (text("0%"), None),
            (Some(IntOrString::Int(0)), None),
            (text("abc"), None),
            (text("-5%"), None),
            (text("99%"), Some(Step::Percent(99))),
            (Some(IntOrString::Int(1)), Some(Step::Number(1))),
            (Some(IntOrString::Int(500)), Some(Step::Number(500))),
            (text("5"), Some(Step::Percent(5))),
            (None, Some(Step::Percent(25))),
        ];
        for (written, read) in rows {
            assert_eq!(Step::read(written.as_ref()).ok(), read, "{written:?}");
        }
        assert_eq!(Step::read_text("5").ok(), Some(Step::Number(5)));
        assert_eq!(Step::read_text("5%").ok(), Some(Step::Percent(5)));
        assert!(Step::read_text("0").is_err() && Step::read_text("").is_err());
    }

    #[test]
    fn percentages_round_as_they_are_used() {
        assert_eq!((Step::Percent(25).up(10), Step::Percent(25).down(10)), (3, 2));
        assert_eq!((Step::Percent(25).up(8), Step::Percent(25).down(8)), (2, 2));
        assert_eq!(Step::Percent(99).up(i32::MAX), 2_126_008_811);
        assert_eq!(Step::Number(7).down(3), 7);
    }
}
