//! Named tasks that live and end together.
//!
//! A task of a [`TaskGroup`] runs until the group's token is cancelled. One that ends before, with an error or without,
//! or that panics, cancels the token, and [`TaskGroup::join`] names it: a daemon that lost a part of itself must not go
//! on as if nothing had happened. Children, started through a [`Spawner`], may end when their work is done; one that
//! panics is logged and told to its supervisor, and takes nobody with it.
//!
//! This is the only place that starts tokio tasks.

use std::any::Any;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::FutureExt;
use tokio::task::{AbortHandle, JoinHandle};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{debug, error};

use crate::error::{BoxError, chain};

/// Why a group ended otherwise than asked.
#[derive(Debug, thiserror::Error)]
pub enum TaskError {
    /// A task returned an error.
    #[error("task {task} failed")]
    Failed {
        /// Its name.
        task: String,
        /// What it returned.
        source: BoxError,
    },
    /// A task returned without an error, but nobody had asked it to.
    #[error("task {task} ended unasked")]
    EndedUnasked {
        /// Its name.
        task: String,
    },
    /// A task panicked.
    #[error("task {task} panicked: {message}")]
    Panicked {
        /// Its name.
        task: String,
        /// What it said.
        message: String,
    },
    /// Tasks were still running when the grace period was over; they were aborted.
    #[error("still running {grace:?} after the stop: {tasks}")]
    Overdue {
        /// Their names.
        tasks: String,
        /// How long they had.
        grace: Duration,
    },
}

/// The tasks of one program.
#[derive(Debug)]
pub struct TaskGroup {
    spawner: Spawner,
}

impl TaskGroup {
    /// An empty group whose tasks end when `token` is cancelled.
    #[must_use]
    pub fn new(token: CancellationToken) -> Self {
        let shared = Shared { token, tracker: TaskTracker::new(), state: Mutex::new(GroupState::default()) };
        Self { spawner: Spawner { shared: Arc::new(shared) } }
    }

    /// The token whose cancellation ends the group.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.spawner.token()
    }

    /// A handle that starts tasks in this group, for supervisors.
    #[must_use]
    pub fn spawner(&self) -> Spawner {
        self.spawner.clone()
    }

    /// Starts a task that lives as long as the group.
    pub fn spawn<E>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<BoxError> + Send + 'static,
    {
        self.spawner.spawn(name, task);
    }

    /// Waits until the group is told to stop, by its token or by a task that ended unasked, and then at most `grace`
    /// for all tasks, children included. What still runs after that is aborted.
    ///
    /// # Errors
    /// The first task that failed, panicked or ended unasked; or else the tasks that outlasted the grace period.
    pub async fn join(self, grace: Duration) -> Result<(), TaskError> {
        let shared = &self.spawner.shared;
        shared.token.cancelled().await;
        shared.tracker.close();
        let overdue = tokio::time::timeout(grace, shared.tracker.wait()).await.is_err();
        let mut state = shared.lock();
        let tasks = state.running.values().map(|running| &*running.name).collect::<Vec<_>>().join(", ");
        for running in state.running.values() {
            running.abort.abort();
        }
        match state.first_failure.take() {
            Some(failure) => Err(failure),
            None if overdue && !tasks.is_empty() => Err(TaskError::Overdue { tasks, grace }),
            None => Ok(()),
        }
    }
}

/// Starts tasks in a group. Clones start them in the same one.
#[derive(Debug, Clone)]
pub struct Spawner {
    shared: Arc<Shared>,
}

impl Spawner {
    /// The token whose cancellation ends the group.
    #[must_use]
    pub fn token(&self) -> CancellationToken {
        self.shared.token.clone()
    }

    /// Starts a task that lives as long as the group.
    pub fn spawn<E>(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = Result<(), E>> + Send + 'static,
    ) where
        E: Into<BoxError> + Send + 'static,
    {
        let shared = Arc::clone(&self.shared);
        drop(self.start(name.into(), |name| async move {
            let ending = AssertUnwindSafe(task).catch_unwind().await;
            let asked = shared.token.is_cancelled();
            let failure = match ending {
                Ok(Ok(())) if asked => None,
                Ok(Ok(())) => Some(TaskError::EndedUnasked { task: name.to_string() }),
                Ok(Err(error)) => Some(TaskError::Failed { task: name.to_string(), source: error.into() }),
                Err(panic) => Some(TaskError::Panicked {
                    task: name.to_string(),
                    message: panic_message(panic.as_ref()),
                }),
            };
            match failure {
                None => debug!(task = %name, "task ended"),
                Some(failure) => shared.fail(failure),
            }
        }));
    }

    /// Starts a task that may end when its work is done, such as the worker of one object.
    ///
    /// It should hold the group's token, or one of its own that its supervisor cancels. Dropping the [`Child`] does not
    /// stop it.
    pub fn spawn_child(
        &self,
        name: impl Into<String>,
        task: impl Future<Output = ()> + Send + 'static,
    ) -> Child {
        let name: Arc<str> = name.into().into();
        let handle = self.start(name.to_string(), |name| async move {
            match AssertUnwindSafe(task).catch_unwind().await {
                Ok(()) => {
                    debug!(task = %name, "task ended");
                    Ok(())
                }
                Err(panic) => {
                    let message = panic_message(panic.as_ref());
                    error!(task = %name, error = %message, "task panicked");
                    Err(message)
                }
            }
        });
        Child { name, handle }
    }

    fn start<F>(&self, name: String, body: impl FnOnce(Arc<str>) -> F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let name: Arc<str> = name.into();
        let body = body(Arc::clone(&name));
        let shared = Arc::clone(&self.shared);
        // Held while spawning, so that a task that ends at once finds its own entry to remove.
        let mut state = self.shared.lock();
        let number = state.next_number;
        state.next_number += 1;
        let entry = Entry { shared, number };
        let handle = self.shared.tracker.spawn(async move {
            let _entry = entry;
            body.await
        });
        state.running.insert(number, Running { name, abort: handle.abort_handle() });
        handle
    }
}

/// A child task as its supervisor sees it.
#[derive(Debug)]
pub struct Child {
    name: Arc<str>,
    handle: JoinHandle<Result<(), String>>,
}

/// How a child failed.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChildError {
    /// It panicked.
    #[error("task {task} panicked: {message}")]
    Panicked {
        /// Its name.
        task: String,
        /// What it said.
        message: String,
    },
    /// It was aborted, by its supervisor or by the end of the group.
    #[error("task {task} was aborted")]
    Aborted {
        /// Its name.
        task: String,
    },
}

impl Child {
    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has ended.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }

    /// Ends it at its next wait, whatever it is doing.
    pub fn abort(&self) {
        self.handle.abort();
    }

    /// Waits for its end. Safe to drop in a `select!`; not to be called again once it has answered.
    ///
    /// # Errors
    /// When it panicked or was aborted.
    pub async fn ended(&mut self) -> Result<(), ChildError> {
        let task = self.name.to_string();
        match (&mut self.handle).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(message)) => Err(ChildError::Panicked { task, message }),
            Err(_) => Err(ChildError::Aborted { task }),
        }
    }
}

#[derive(Debug)]
struct Shared {
    token: CancellationToken,
    tracker: TaskTracker,
    /// Guards the list of running tasks and the first failure; held for a few instructions only.
    state: Mutex<GroupState>,
}

#[derive(Debug, Default)]
struct GroupState {
    running: BTreeMap<u64, Running>,
    next_number: u64,
    first_failure: Option<TaskError>,
}

#[derive(Debug)]
struct Running {
    name: Arc<str>,
    abort: AbortHandle,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, GroupState> {
        // Nothing panics while it is held; and if it did, the maps would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fail(&self, failure: TaskError) {
        error!(error = %chain(&failure), "stopping, because a task ended");
        self.lock().first_failure.get_or_insert(failure);
        self.token.cancel();
    }
}

/// Takes a task off the list when it ends in any way, also when it is aborted.
struct Entry {
    shared: Arc<Shared>,
    number: u64,
}

impl Drop for Entry {
    fn drop(&mut self) {
        self.shared.lock().running.remove(&self.number);
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Entry").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Starts a task of this crate's own that no group waits for.
pub(crate) fn spawn_detached(task: impl Future<Output = ()> + Send + 'static) {
    #[allow(clippy::disallowed_methods, reason = "this module is where tasks are started")]
    drop(tokio::spawn(task));
}

fn panic_message(panic: &(dyn Any + Send)) -> String {
    panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests;
