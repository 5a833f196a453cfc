//! Readiness: named conditions that a program's tasks set, and that the admin endpoint reads.
//!
//! A program is ready when every condition it named is met. Conditions start unmet and are named before anybody can ask:
//! what can be asked is made of all of them, and takes no more.

use std::sync::Arc;

use tokio::sync::watch;

/// The conditions of a program that is being put together.
#[derive(Debug, Default)]
pub struct Conditions {
    named: Vec<(&'static str, Condition)>,
}

impl Conditions {
    /// Names a condition, unmet until set, and returns the end that sets it.
    #[must_use]
    pub fn name(&mut self, name: &'static str) -> Condition {
        let condition = Condition::default();
        self.named.push((name, condition.clone()));
        condition
    }

    /// All are named.
    #[must_use]
    pub fn close(self) -> Readiness {
        Readiness { named: self.named.into() }
    }
}

/// Whether a program is ready.
#[derive(Debug, Clone)]
pub struct Readiness {
    named: Arc<[(&'static str, Condition)]>,
}

impl Readiness {
    /// The names of the conditions that are not met, in the order in which they were named.
    #[must_use]
    pub fn unmet(&self) -> Vec<&'static str> {
        self.named.iter().filter(|(_, condition)| !condition.is_met()).map(|(name, _)| *name).collect()
    }
}

/// One condition, as the task holds it that knows whether it is met.
#[derive(Debug, Clone, Default)]
pub struct Condition {
    is_met: Arc<watch::Sender<bool>>,
}

impl Condition {
    /// Says whether it is met.
    pub fn set(&self, is_met: bool) {
        self.is_met.send_replace(is_met);
    }

    /// Waits until it is met.
    pub async fn met(&self) {
        // The other end is ours: it does not go.
        let _ = self.is_met.subscribe().wait_for(|is_met| *is_met).await;
    }

    fn is_met(&self) -> bool {
        *self.is_met.borrow()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_is_ready_when_every_condition_is_met() {
        let mut conditions = Conditions::default();
        let watch = conditions.name("watch");
        let lease = conditions.name("lease");
        let readiness = conditions.close();
        assert_eq!(readiness.unmet(), ["watch", "lease"]);
        watch.set(true);
        assert_eq!(readiness.unmet(), ["lease"]);
        lease.set(true);
        assert!(readiness.unmet().is_empty());
        watch.set(false);
        assert_eq!(readiness.unmet(), ["watch"]);
    }
}
