//! The thread that keeps a server which stands in no cluster: it takes the place of the journal and of the agent, so that
//! a game on a laptop meets the same server as in a cluster, without anything else running.
//!
//! A call is answered once what it asks for has happened. Nothing is kept when the program ends.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use berth_api::link::{Sequence, ToAgent, View};
use berth_runtime::CancellationToken;
use berth_runtime::clock::Clock;
use berth_runtime::error::chain;
use tokio::sync::oneshot;
use tracing::{info, warn};

use super::{Seat, Tray};
use crate::server::local::{apply, read, usual};
use crate::server::page::Past;

/// How often the file is looked at.
const LOOK: Duration = Duration::from_millis(500);

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum LocalError {
    #[error("could not read {path}")]
    Read { path: PathBuf, source: io::Error },
    #[error("{path} does not hold a game server")]
    Parse { path: PathBuf, source: serde_yaml_ng::Error },
    #[error("could not start the server's thread")]
    Start(#[source] io::Error),
    #[error("the server's thread ended unasked")]
    Ended,
}

/// A server, and the file that it comes from, if any.
#[derive(Debug)]
pub(crate) struct Ground {
    tray: Arc<Tray>,
    view: View,
    applied: Sequence,
    file: Option<File>,
}

#[derive(Debug)]
struct File {
    path: PathBuf,
    written_at: Option<SystemTime>,
}

impl File {
    fn written_at(&self) -> Option<SystemTime> {
        std::fs::metadata(&self.path).and_then(|metadata| metadata.modified()).ok()
    }

    fn read(&mut self) -> Result<View, LocalError> {
        self.written_at = self.written_at();
        let text = std::fs::read_to_string(&self.path)
            .map_err(|source| LocalError::Read { path: self.path.clone(), source })?;
        read(&text).map_err(|source| LocalError::Parse { path: self.path.clone(), source })
    }
}

impl Ground {
    /// The server of a file, or the usual one.
    pub(crate) fn new(file: Option<PathBuf>, tray: Arc<Tray>, clock: Clock) -> Result<Self, LocalError> {
        let mut file = file.map(|path| File { path, written_at: None });
        let view = match &mut file {
            Some(file) => file.read()?,
            None => usual(clock.now()),
        };
        Ok(Self { tray, view, applied: Sequence::default(), file })
    }

    /// Keeps the server until `stop`.
    pub(crate) async fn run(self, seat: Arc<Seat>, stop: CancellationToken) -> Result<(), LocalError> {
        let tray = Arc::clone(&self.tray);
        let (alive, mut ended) = oneshot::channel::<()>();
        let keep = move || {
            let _alive = alive;
            self.keep(&seat);
        };
        std::thread::Builder::new().name("local".to_owned()).spawn(keep).map_err(LocalError::Start)?;
        tokio::select! {
            biased;
            () = stop.cancelled() => {}
            _ = &mut ended => return Err(LocalError::Ended),
        }
        tray.close();
        let _ = ended.await;
        Ok(())
    }

    fn keep(mut self, seat: &Seat) {
        loop {
            let look_at = self.file.as_ref().map(|_| Instant::now() + LOOK);
            let waiting = self.tray.take(look_at);
            if !seat.is_read() {
                seat.read(Past::default());
                self.show(seat);
            }
            if let Some(draft) = seat.draft() {
                seat.written_then(&draft, || self.settle(seat));
            }
            if waiting.is_closing {
                return;
            }
            self.look(seat);
        }
    }

    /// Does everything that is asked for.
    fn settle(&mut self, seat: &Seat) {
        for frame in seat.take_news() {
            if let ToAgent::Change { sequence, change, .. } = frame {
                apply(&mut self.view, &change);
                self.applied = sequence;
            }
        }
        self.show(seat);
    }

    /// Takes the server of the file again when somebody has written to it.
    fn look(&mut self, seat: &Seat) {
        let Some(file) = self.file.as_mut().filter(|file| file.written_at() != file.written_at) else {
            return;
        };
        match file.read() {
            Ok(view) => {
                info!(path = %file.path.display(), "the file has changed, and the server with it");
                self.view = view;
                self.show(seat);
            }
            Err(error) => warn!(error = %chain(&error), "the file has changed; the server stays as it was"),
        }
    }

    fn show(&self, seat: &Seat) {
        seat.introduce(Box::new(self.view.clone()), self.applied);
    }
}
