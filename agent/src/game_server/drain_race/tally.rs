//! What rounds have met.

use std::fmt;

/// Counts of rounds, but for the last three.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// An allocation came before the delete, which was refused for it.
    pub(super) allocate_first: u64,
    /// The delete came before an allocation, which was refused for it.
    pub(super) delete_first: u64,
    /// A server became Ready after the drain had begun.
    pub(super) late_ready: u64,
    /// The agent died on the way.
    pub(super) deaths: u64,
    /// Sessions that were alive at the end, or had ended as their games wished.
    pub(super) sessions: u64,
    /// Pods that were deleted for the taint.
    pub(super) evicted: u64,
    /// Sessions that somebody other than the game has ended.
    pub(super) lost: Vec<String>,
    /// What was not done in the end.
    pub(super) unfinished: Vec<String>,
}

impl Tally {
    pub(super) fn add(&mut self, round: Self) {
        self.allocate_first += round.allocate_first.min(1);
        self.delete_first += round.delete_first.min(1);
        self.late_ready += round.late_ready.min(1);
        self.deaths += round.deaths;
        self.sessions += round.sessions;
        self.evicted += round.evicted;
        self.lost.extend(round.lost);
        self.unfinished.extend(round.unfinished);
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "allocate first {}, delete first {}, late Ready {}, agent died {}; sessions {}, pods evicted {}, \
             sessions lost {}",
            self.allocate_first,
            self.delete_first,
            self.late_ready,
            self.deaths,
            self.sessions,
            self.evicted,
            self.lost.len()
        )
    }
}
