//! Orders over the local socket, on their way to the drainer.

use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::Course;

/// Orders that may wait.
const WAITING: usize = 8;

/// What is ordered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Empty the node.
    Drain {
        /// Why.
        reason: String,
        /// When it will be gone, where that is known.
        deadline: Option<Timestamp>,
    },
    /// Take that back.
    Undrain,
}

/// An order that waits for its answer: the course that came of it, once a restart would not lose it.
#[derive(Debug)]
pub struct Order {
    /// What.
    pub ask: Ask,
    /// To whom the answer goes.
    pub answer: oneshot::Sender<Result<Course, String>>,
}

/// Gives orders to the drainer. Clones give them to the same one.
#[derive(Clone, Debug)]
pub struct Orders {
    sender: mpsc::Sender<Order>,
}

impl Orders {
    /// Where orders go in, and where they come out.
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<Order>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Self { sender }, receiver)
    }

    /// Orders, and waits for the answer.
    ///
    /// # Errors
    /// Why it is not done.
    pub async fn give(&self, ask: Ask) -> Result<Course, String> {
        let gone = || "the agent is stopping".to_owned();
        let (answer, answered) = oneshot::channel();
        self.sender.send(Order { ask, answer }).await.map_err(|_| gone())?;
        answered.await.unwrap_or_else(|_| Err(gone()))
    }
}
