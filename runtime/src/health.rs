//! Readiness: named conditions that a program's tasks set, and that the admin endpoint reads.
//!
//! A program is ready when every condition it named is met. A condition starts unmet, so that naming all of them in the
//! composition root keeps the program unready until the last task has reported.

use std::collections::BTreeMap;
use std::sync::Arc;

use tokio::sync::watch;

/// The conditions of one program. Clones share them.
#[derive(Debug, Clone)]
pub struct Readiness {
    conditions: Arc<watch::Sender<BTreeMap<&'static str, bool>>>,
}

impl Default for Readiness {
    fn default() -> Self {
        Self::new()
    }
}

impl Readiness {
    /// No conditions: ready.
    #[must_use]
    pub fn new() -> Self {
        Self { conditions: Arc::new(watch::Sender::new(BTreeMap::new())) }
    }

    /// Names a condition, unmet until set, and returns the end that sets it.
    #[must_use]
    pub fn condition(&self, name: &'static str) -> Condition {
        self.conditions.send_if_modified(|conditions| {
            let known = conditions.contains_key(name);
            conditions.entry(name).or_insert(false);
            !known
        });
        Condition { name, readiness: self.clone() }
    }

    /// Sets a condition, naming it if it is new.
    pub fn set(&self, name: &'static str, met: bool) {
        self.conditions.send_if_modified(|conditions| conditions.insert(name, met) != Some(met));
    }

    /// The names of the conditions that are not met.
    #[must_use]
    pub fn unmet(&self) -> Vec<&'static str> {
        unmet(&self.conditions.borrow())
    }

    /// Whether every condition is met.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.unmet().is_empty()
    }

    /// Waits until every condition is met.
    pub async fn ready(&self) {
        let mut changes = self.conditions.subscribe();
        // The sender lives in `self`, so the channel cannot close while we wait.
        let _ = changes.wait_for(|conditions| unmet(conditions).is_empty()).await;
    }
}

fn unmet(conditions: &BTreeMap<&'static str, bool>) -> Vec<&'static str> {
    conditions.iter().filter(|(_, met)| !**met).map(|(name, _)| *name).collect()
}

/// The end of one condition that its task holds.
#[derive(Debug, Clone)]
pub struct Condition {
    name: &'static str,
    readiness: Readiness,
}

impl Condition {
    /// Says whether the condition is met.
    pub fn set(&self, met: bool) {
        self.readiness.set(self.name, met);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_ready_when_every_condition_is_met() {
        let readiness = Readiness::new();
        assert!(readiness.is_ready());
        let lease = readiness.condition("lease");
        let watch = readiness.condition("watch");
        assert_eq!(readiness.unmet(), ["lease", "watch"]);
        watch.set(true);
        assert_eq!(readiness.unmet(), ["lease"]);
        lease.set(true);
        assert!(readiness.is_ready());
        watch.set(false);
        assert_eq!(readiness.unmet(), ["watch"]);
    }

    #[test]
    fn naming_a_condition_again_keeps_its_value() {
        let readiness = Readiness::new();
        readiness.set("lease", true);
        let _lease = readiness.condition("lease");
        assert!(readiness.is_ready());
    }

    #[tokio::test(start_paused = true)]
    async fn one_can_wait_for_readiness() {
        let readiness = Readiness::new();
        let lease = readiness.condition("lease");
        let (ready, ()) =
            tokio::join!(tokio::time::timeout(std::time::Duration::from_secs(1), readiness.ready()), async {
                lease.set(true)
            });
        assert!(ready.is_ok());
    }
}
