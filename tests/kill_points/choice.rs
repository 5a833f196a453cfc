//! Which points a run goes through.

use std::collections::VecDeque;
use std::fmt;

use berth_runtime::kill_point::{Effect, KillPoint};

/// The variable that chooses.
const VARIABLE: &str = "BERTH_KILL_POINTS";
/// What is gone through where nobody chooses: one point of so many.
const PARTS: usize = 4;

/// Every so-manieth point, from one on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Choice {
    part: usize,
    parts: usize,
    /// Also those for which a node falls silent, each of which takes longer than a lease.
    pub(crate) with_silence: bool,
}

impl Choice {
    /// As the environment says, or a part that takes a minute or two.
    pub(crate) fn of_this_run() -> anyhow::Result<Self> {
        match std::env::var(VARIABLE) {
            Ok(text) if !text.is_empty() => Self::read(&text)
                .ok_or_else(|| anyhow::anyhow!("{VARIABLE} is {text:?}; it must be `all`, or like 2/3")),
            // The same each time: what passed once is not to fail for another reason than a change.
            Ok(_) | Err(_) => Ok(Self { part: PARTS - 1, parts: PARTS, with_silence: false }),
        }
    }

    fn read(text: &str) -> Option<Self> {
        if text == "all" {
            return Some(Self { part: 0, parts: 1, with_silence: true });
        }
        let (part, parts) = text.split_once('/')?;
        let (part, parts) = (part.parse::<usize>().ok()?.checked_sub(1)?, parts.parse().ok()?);
        (part < parts).then_some(Self { part, parts, with_silence: true })
    }

    /// The points of a program that are chosen.
    pub(crate) fn points<E: Effect>(self) -> VecDeque<KillPoint> {
        KillPoint::all_of::<E>().into_iter().skip(self.part).step_by(self.parts).collect()
    }
}

impl fmt::Display for Choice {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let silence = if self.with_silence { "" } else { ", without silent nodes" };
        write!(formatter, "part {} of {}{silence}", self.part + 1, self.parts)
    }
}

#[test]
fn a_choice_is_read_and_all_parts_together_are_all_points() {
    assert_eq!(Choice::read("all"), Some(Choice { part: 0, parts: 1, with_silence: true }));
    for wrong in ["", "0/3", "4/3", "1", "a/b"] {
        assert_eq!(Choice::read(wrong), None, "{wrong}");
    }
    let of = |text| Choice::read(text).expect("a choice").points::<berth_agent::effects::Effect>();
    let mut parts: Vec<KillPoint> = ["1/3", "2/3", "3/3"].into_iter().flat_map(of).collect();
    parts.sort();
    let mut all = Vec::from(of("all"));
    all.sort();
    let count = all.len();
    assert_eq!(parts, all);
    all.dedup();
    assert_eq!(all.len(), count, "two effects have one word");
}
