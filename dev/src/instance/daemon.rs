//! Processes of an instance: started apart from their starter, with a log each, and started again at will.

use std::fs::OpenOptions;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::process::Signal;

use super::{Instance, InstanceError};
use crate::eventually::{Overdue, eventually};
use crate::node_spaces::{self, SpacesError};
use crate::places;
use crate::process::Identity;

/// What a killed process may take to be gone.
const END_LIMIT: Duration = Duration::from_secs(30);

/// A daemon that could not be started or stopped.
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The program cannot be run.
    #[error("could not start {name} ({program}): is it built?")]
    Start {
        /// What the instance calls it.
        name: String,
        /// Its program.
        program: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The namespaces that it was to run in cannot be had.
    #[error("could not enter the place where {name} was to run")]
    Place {
        /// What the instance calls it.
        name: String,
        /// Why.
        source: SpacesError,
    },
    /// Its log or its record.
    #[error("could not keep a record of {name}")]
    Record {
        /// What the instance calls it.
        name: String,
        /// Why.
        source: InstanceError,
    },
    /// It does not end.
    #[error("{name} does not end")]
    Stays {
        /// What the instance calls it.
        name: String,
        /// How long we waited.
        source: Overdue,
    },
}

/// How to start a daemon.
#[derive(Debug, Clone)]
pub struct Launch {
    name: String,
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    place: Place,
}

/// Where a daemon runs.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// In the namespaces of whoever starts it.
    Machine,
    /// In new ones, as their first process.
    NewNode,
    /// In those that this process holds.
    Node(Identity),
}

impl Launch {
    /// A program to be run on the machine under this name, which no other daemon of the instance may have.
    pub fn new(name: impl Into<String>, program: impl Into<PathBuf>) -> Self {
        let (name, program) = (name.into(), program.into());
        Self { name, program, arguments: Vec::new(), environment: Vec::new(), place: Place::Machine }
    }

    /// Adds an argument.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    /// Adds arguments.
    #[must_use]
    pub fn arguments<Argument: Into<String>>(
        mut self,
        arguments: impl IntoIterator<Item = Argument>,
    ) -> Self {
        self.arguments.extend(arguments.into_iter().map(Into::into));
        self
    }

    /// Sets a variable. Beside those set here, a daemon gets a search path, a home and the asked-for log filter.
    #[must_use]
    pub fn variable(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.environment.push((name.into(), value.into()));
        self
    }

    /// What the instance calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn named_after(mut self, node: &str) -> Self {
        self.name = format!("{node}-{}", self.name);
        self
    }

    pub(crate) fn in_new_spaces(mut self) -> Self {
        self.place = Place::NewNode;
        self
    }

    pub(crate) fn in_spaces_of(mut self, holder: Identity) -> Self {
        self.place = Place::Node(holder);
        self
    }

    /// `setsid` makes it independent of our terminal, and runs it under the number it has itself.
    fn command(&self, mark: (String, String)) -> Command {
        let mut command = Command::new("/usr/bin/setsid");
        command.arg("--").arg(&self.program).args(&self.arguments).current_dir("/").env_clear();
        command.env("PATH", places::search_path()).env("HOME", places::home_folder());
        if let Some(filter) = places::log_filter() {
            command.env("RUST_LOG", filter);
        }
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.env(mark.0, mark.1).stdin(Stdio::null());
        command
    }
}

/// A process that an instance runs. Dropping this leaves it running: it is the instance's.
#[derive(Debug)]
pub struct Daemon {
    instance: Arc<Instance>,
    launch: Launch,
    log: PathBuf,
    was_running: bool,
    /// Guards which process it is now: another one after each start.
    current: Mutex<Identity>,
}

impl Daemon {
    /// Starts it. That it ends at once is seen as any other end.
    ///
    /// # Errors
    /// When its program cannot be run.
    pub fn start(instance: &Arc<Instance>, launch: Launch) -> Result<Self, DaemonError> {
        let log = log_path(instance, &launch.name)?;
        let current = Mutex::new(spawn(instance, &launch, &log)?);
        Ok(Self { instance: Arc::clone(instance), launch, log, was_running: false, current })
    }

    /// The one of this name that runs already, whoever started it; otherwise starts it.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn ensure(instance: &Arc<Instance>, launch: Launch) -> Result<Self, DaemonError> {
        match instance.running(&launch.name) {
            None => Self::start(instance, launch),
            Some(identity) => {
                let log = log_path(instance, &launch.name)?;
                let current = Mutex::new(identity);
                Ok(Self { instance: Arc::clone(instance), launch, log, was_running: true, current })
            }
        }
    }

    /// What the instance calls it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.launch.name
    }

    /// The program it was started as.
    #[must_use]
    pub fn program(&self) -> &Path {
        &self.launch.program
    }

    /// Which process it is now.
    #[must_use]
    pub fn identity(&self) -> Identity {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Its number on this machine.
    #[must_use]
    pub fn pid(&self) -> i32 {
        self.identity().pid()
    }

    /// Whether it runs.
    #[must_use]
    pub fn is_alive(&self) -> bool {
        self.identity().is_alive()
    }

    /// Whether it ran already when it was asked for.
    pub(crate) fn was_running(&self) -> bool {
        self.was_running
    }

    /// Whether its program is the file that is at `path` now; not when that was replaced since.
    pub(crate) fn runs_from(&self, path: &Path) -> bool {
        let link = format!("/proc/{}/exe", self.pid());
        std::fs::read_link(link).is_ok_and(|program| program == path)
    }

    /// The file it writes to.
    #[must_use]
    pub fn log(&self) -> &Path {
        &self.log
    }

    /// Sends it a signal. False when it is gone.
    pub fn signal(&self, signal: Signal) -> bool {
        self.identity().signal(signal)
    }

    /// Stops it where it is, as a frozen machine would.
    pub fn pause(&self) -> bool {
        self.signal(Signal::STOP)
    }

    /// Lets it go on after [`Daemon::pause`].
    pub fn resume(&self) -> bool {
        self.signal(Signal::CONT)
    }

    /// Kills it without warning and waits until it is gone.
    ///
    /// # Errors
    /// When it stays.
    pub async fn kill(&self) -> Result<(), DaemonError> {
        self.signal(Signal::KILL);
        self.wait(END_LIMIT).await.map(drop)
    }

    /// Asks it to end (`SIGTERM`) and waits until it has.
    ///
    /// # Errors
    /// When it is still there at the limit.
    pub async fn terminate(&self, limit: Duration) -> Result<Option<ExitStatus>, DaemonError> {
        self.signal(Signal::TERM);
        self.wait(limit).await
    }

    /// Waits for its end. How it ended is known when this process started it.
    ///
    /// # Errors
    /// When it is still there at the limit.
    pub async fn wait(&self, limit: Duration) -> Result<Option<ExitStatus>, DaemonError> {
        let identity = self.identity();
        let ended = eventually(limit, format!("{} to end", self.launch.name), async || {
            // Looked at before: one that ends right after the reaping is reaped by the next.
            let is_alive = identity.is_alive();
            // Of all children: a node's first process ends after all others in there.
            self.instance.reap();
            let status = self.instance.exit_status(identity);
            if status.is_some() || !is_alive { Ok(status) } else { Err("it runs") }
        });
        ended.await.map_err(|source| DaemonError::Stays { name: self.launch.name.clone(), source })
    }

    /// Starts it again after it has ended, exactly as before.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_again(&self) -> Result<(), DaemonError> {
        self.start_as(&self.launch)
    }

    /// The same, this once with a variable more.
    ///
    /// # Errors
    /// As [`Daemon::start`].
    pub fn start_again_with(&self, name: &str, value: &str) -> Result<(), DaemonError> {
        self.start_as(&self.launch.clone().variable(name, value))
    }

    fn start_as(&self, launch: &Launch) -> Result<(), DaemonError> {
        self.instance.reap();
        let identity = spawn(&self.instance, launch, &self.log)?;
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = identity;
        Ok(())
    }

    /// Kills it and starts it again.
    ///
    /// # Errors
    /// As [`Daemon::kill`] and [`Daemon::start`].
    pub async fn restart(&self) -> Result<(), DaemonError> {
        self.kill().await?;
        self.start_again()
    }

    /// The end of its log, for a message.
    #[must_use]
    pub fn last_words(&self) -> String {
        let text = std::fs::read(&self.log).unwrap_or_default();
        crate::command::last_lines(String::from_utf8_lossy(&text).trim_end(), 10).to_owned()
    }
}

fn log_path(instance: &Instance, name: &str) -> Result<PathBuf, DaemonError> {
    let folder = instance.subfolder("logs");
    let folder = folder.map_err(|source| DaemonError::Record { name: name.to_owned(), source })?;
    Ok(folder.join(format!("{name}.log")))
}

fn spawn(instance: &Instance, launch: &Launch, log: &Path) -> Result<Identity, DaemonError> {
    let started =
        |source| DaemonError::Start { name: launch.name.clone(), program: launch.program.clone(), source };
    let output = OpenOptions::new().create(true).append(true).open(log).map_err(started)?;
    let mut command = launch.command(instance.mark());
    command.stdout(output.try_clone().map_err(started)?).stderr(output);
    if !launch.program.is_file() {
        return Err(started(io::ErrorKind::NotFound.into()));
    }
    let child = match launch.place {
        Place::Machine => command.spawn().map_err(started)?,
        Place::NewNode => on_own_thread(launch, command, node_spaces::leave)?,
        Place::Node(holder) => on_own_thread(launch, command, move || node_spaces::enter(holder))?,
    };
    let identity = Identity::of_child(&child).ok_or_else(|| started(io::ErrorKind::NotFound.into()))?;
    let recorded = instance.adopt(&launch.name, identity, child);
    recorded.map_err(|source| DaemonError::Record { name: launch.name.clone(), source })?;
    Ok(identity)
}

/// Starts a process from a thread that has changed its own namespaces, which the process then has, and the rest of
/// us has not.
fn on_own_thread(
    launch: &Launch,
    mut command: Command,
    change: impl FnOnce() -> Result<(), SpacesError> + Send + 'static,
) -> Result<Child, DaemonError> {
    let thread = thread::spawn(move || change().map(|()| command.spawn()));
    let outcome = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    let (name, program) = (launch.name.clone(), launch.program.clone());
    match outcome {
        Ok(Ok(child)) => Ok(child),
        Ok(Err(source)) => Err(DaemonError::Start { name, program, source }),
        Err(source) => Err(DaemonError::Place { name, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn one_that_ends_at_once_has_been_started_and_how_it_ended_is_known() {
        let instance = Instance::create("brief").unwrap();
        for turn in 0..50 {
            let daemon =
                Daemon::start(&instance, Launch::new(format!("brief-{turn}"), "/bin/false")).unwrap();
            let status = daemon.wait(END_LIMIT).await.unwrap();
            assert_eq!(status.and_then(|status| status.code()), Some(1), "{turn}");
        }
    }
}
