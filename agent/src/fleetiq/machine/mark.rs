//! Where a predecessor of the machine left off. Pure.

use crate::drain::marks::{Marks, Phase};

/// Where a predecessor left off, as its marks say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// There is none: FleetIQ is asked what it thinks of the instance before anything is begun.
    None,
    /// It was registered.
    Registered,
    /// It was kept, whatever the node's course was.
    Active,
    /// It was given back.
    Deregistered,
}

impl Mark {
    /// What the Node's marks say of it.
    #[must_use]
    pub fn of(marks: &Marks) -> Self {
        match marks.phase {
            None => Self::None,
            Some(Phase::Registered) => Self::Registered,
            Some(Phase::Active) => Self::Active,
            Some(Phase::Deregistered) => Self::Deregistered,
            // Whether it was kept is not said: a sign of life finds out. Without an instance FleetIQ had no part in the drain.
            Some(Phase::Draining | Phase::Drained | Phase::Terminating) => match marks.instance {
                Some(_) => Self::Active,
                None => Self::None,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Mark;
    use crate::drain::marks::{Marks, Phase};

    #[test]
    fn defect_10_a_successor_goes_on_from_the_marks_of_the_node() {
        let table = [
            (None, Some("i-1"), Mark::None),
            (Some(Phase::Registered), Some("i-1"), Mark::Registered),
            (Some(Phase::Active), Some("i-1"), Mark::Active),
            (Some(Phase::Draining), Some("i-1"), Mark::Active),
            (Some(Phase::Terminating), Some("i-1"), Mark::Active),
            (Some(Phase::Drained), Some("i-1"), Mark::Active),
            (Some(Phase::Draining), None, Mark::None),
            (Some(Phase::Deregistered), Some("i-1"), Mark::Deregistered),
        ];
        for (phase, instance, expected) in table {
            let marks = Marks { phase, instance: instance.map(str::to_owned), ..Marks::default() };
            assert_eq!(Mark::of(&marks), expected, "{phase:?} {instance:?}");
        }
    }
}
