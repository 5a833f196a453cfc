//! The one thread of a node that waits for sandboxes.
//!
//! One thread with one inotify instance, rather than a thread for each pod: a user has 128 instances by default and a
//! node may start more pods than that at once, while watches are plenty. It is a thread and not a task because it must
//! react within milliseconds, whatever the runtime is busy with. It holds a watch on each folder in which pods appear and
//! one on the folder of each pod that is waited for, so both are bounded by what the node runs.
//!
//! For each sandbox found it starts a thread that enters it, listens, answers, and ends. A fresh one each time: nobody
//! has to come back from a namespace, and a kernel that makes one wait there delays one pod only.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, TrySendError, sync_channel};
use std::thread;
use std::time::Instant;

use nix::errno::Errno;
use nix::sys::inotify::{AddWatchFlags, InitFlags, Inotify, InotifyEvent, WatchDescriptor};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use tokio::sync::oneshot;
use tracing::{debug, warn};

use super::hierarchy::Hierarchy;
use super::pending::Schedule;
use super::processes::{self, Look, Sandbox};
use super::{HostError, HostMetrics, NetnsId, SandboxRequest, SdkSockets, cgroup_path, netns};

/// Pods that may be waited for at once, those among them whose sandbox is known: more than any node runs.
const MAX_WAITING: usize = 1024;
/// Stack of a thread that listens: it calls little.
const STACK: usize = 256 * 1024;

type Answer = oneshot::Sender<Result<SdkSockets, HostError>>;

/// What one caller waits for.
struct Wanted {
    request: SandboxRequest,
    answer: Answer,
}

/// Speaks to the thread. Dropping it ends the thread, and everybody's waiting.
#[derive(Debug)]
pub(super) struct Watcher {
    requests: Option<SyncSender<Wanted>>,
    wake: Arc<OwnedFd>,
}

impl Watcher {
    /// Starts the thread.
    ///
    /// # Errors
    /// Cgroups cannot be watched.
    pub(super) fn start(
        hierarchy: Hierarchy,
        host: Vec<NetnsId>,
        metrics: HostMetrics,
    ) -> Result<Self, HostError> {
        let watch_error = |source: io::Error| HostError::Watch { source };
        let inotify = Inotify::init(InitFlags::IN_CLOEXEC | InitFlags::IN_NONBLOCK)
            .map_err(|error| watch_error(error.into()))?;
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map_err(|error| watch_error(error.into()))?;
        let wake = Arc::new(wake);
        let (requests, inbox) = sync_channel(MAX_WAITING);
        let mut watching = Watching {
            inotify,
            wake: Arc::clone(&wake),
            inbox,
            hierarchy,
            host,
            pending: Vec::new(),
            places: HashMap::new(),
            metrics,
        };
        watching.watch_parents().map_err(watch_error)?;
        thread::Builder::new()
            .name("sandboxes".to_owned())
            .spawn(move || watching.run())
            .map_err(watch_error)?;
        Ok(Self { requests: Some(requests), wake })
    }

    /// Waits for a sandbox; dropping the receiver ends the waiting.
    ///
    /// # Errors
    /// Too many wait, or the thread is gone.
    pub(super) fn ask(
        &self,
        request: SandboxRequest,
    ) -> Result<oneshot::Receiver<Result<SdkSockets, HostError>>, HostError> {
        let (answer, answered) = oneshot::channel();
        let requests = self.requests.as_ref().ok_or(HostError::WatcherGone)?;
        requests.try_send(Wanted { request, answer }).map_err(|error| match error {
            TrySendError::Full(_) => HostError::TooManyWaiting { limit: MAX_WAITING },
            TrySendError::Disconnected(_) => HostError::WatcherGone,
        })?;
        self.wake();
        Ok(answered)
    }

    fn wake(&self) {
        // It fails only when the counter is full, and then the thread is about to wake anyway.
        let _ = rustix::io::write(&*self.wake, &1_u64.to_ne_bytes());
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        self.requests = None;
        self.wake();
    }
}

/// What a watch stands for.
#[derive(Clone)]
enum Place {
    /// A folder in which pods, or the folders for pods, appear.
    Parent(PathBuf),
    /// The folder of a pod, in which containers appear.
    Pod(String),
}

struct Pending {
    request: SandboxRequest,
    answer: Answer,
    /// The pod's folder, once it is there and watched.
    folder: Option<PathBuf>,
    schedule: Schedule,
}

/// The thread's own state.
struct Watching {
    inotify: Inotify,
    wake: Arc<OwnedFd>,
    inbox: Receiver<Wanted>,
    hierarchy: Hierarchy,
    host: Vec<NetnsId>,
    pending: Vec<Pending>,
    places: HashMap<WatchDescriptor, Place>,
    metrics: HostMetrics,
}

/// How one look at one pod ended.
enum Turn {
    Wait,
    Found(Box<Sandbox>),
    Failed(HostError),
}

impl Watching {
    fn run(mut self) {
        while self.take_requests() {
            self.take_events();
            self.look_at_due();
            let waiting = self.pending.iter().filter(|pending| pending.request.other_than.is_none()).count();
            self.metrics.waiting.set(i64::try_from(waiting).unwrap_or(i64::MAX));
            self.wait();
        }
        self.metrics.waiting.set(0);
    }

    /// False when nobody can ask any more.
    fn take_requests(&mut self) -> bool {
        loop {
            match self.inbox.try_recv() {
                Ok(Wanted { answer, .. }) if self.pending.len() >= MAX_WAITING => {
                    // The caller may have gone; it is told, or nobody is.
                    let _ = answer.send(Err(HostError::TooManyWaiting { limit: MAX_WAITING }));
                }
                Ok(Wanted { request, answer }) => {
                    let is_known = request.other_than.is_some();
                    let begin = if is_known { Schedule::of_known } else { Schedule::new };
                    let schedule = begin(Instant::now());
                    self.pending.push(Pending { request, answer, folder: None, schedule });
                }
                Err(TryRecvError::Empty) => return true,
                Err(TryRecvError::Disconnected) => return false,
            }
        }
    }

    fn take_events(&mut self) {
        loop {
            match self.inotify.read_events() {
                Ok(events) => events.iter().for_each(|event| self.note(event)),
                Err(Errno::EINTR) => {}
                Err(Errno::EAGAIN) => return,
                Err(error) => {
                    warn!(%error, "could not read what happened to cgroups; looking at all of them");
                    return self.nudge_all();
                }
            }
        }
    }

    fn note(&mut self, event: &InotifyEvent) {
        let now = Instant::now();
        if event.mask.contains(AddWatchFlags::IN_Q_OVERFLOW) {
            self.metrics.overflows.inc();
            return self.nudge_all();
        }
        let Some(place) = self.places.get(&event.wd).cloned() else { return };
        let is_gone = event.mask.contains(AddWatchFlags::IN_IGNORED);
        if is_gone {
            self.places.remove(&event.wd);
        }
        match place {
            Place::Pod(uid) => {
                for pending in self.pending.iter_mut().filter(|pending| pending.request.pod_uid == uid) {
                    // One of the same name that comes in its place needs a watch of its own.
                    pending.folder = pending.folder.take().filter(|_| !is_gone);
                    pending.schedule.stir(now);
                }
            }
            Place::Parent(_) => {
                let name = event.name.as_ref().map(|name| name.to_string_lossy());
                match name.and_then(|name| cgroup_path::pod_uid(&name)) {
                    Some(uid) => {
                        let same = |pending: &&mut Pending| pending.request.pod_uid == uid;
                        self.pending.iter_mut().filter(same).for_each(|pending| pending.schedule.nudge(now));
                    }
                    None => {
                        if let Err(error) = self.watch_parents() {
                            warn!(%error, "could not watch all folders of pods; looking at them regularly");
                        }
                        self.nudge_all();
                    }
                }
            }
        }
    }

    fn nudge_all(&mut self) {
        let now = Instant::now();
        self.pending.iter_mut().for_each(|pending| pending.schedule.nudge(now));
    }

    /// Watches every folder in which pods appear, or the nearest one above it. A folder that comes between the look and
    /// the watch is found in the next round.
    fn watch_parents(&mut self) -> io::Result<()> {
        let mut watched: Vec<PathBuf> = Vec::new();
        loop {
            let points = self.hierarchy.watch_points();
            let new: Vec<PathBuf> = points.into_iter().filter(|point| !watched.contains(point)).collect();
            if new.is_empty() {
                break;
            }
            for point in new {
                match self.watch(&point) {
                    Ok(descriptor) => {
                        self.places.insert(descriptor, Place::Parent(point.clone()));
                    }
                    // Gone again; what is above it tells when it comes back.
                    Err(Errno::ENOENT) => {}
                    Err(error) => return Err(error.into()),
                }
                watched.push(point);
            }
        }
        let stale: Vec<WatchDescriptor> = self
            .places
            .iter()
            .filter(|(_, place)| matches!(place, Place::Parent(path) if !watched.contains(path)))
            .map(|(descriptor, _)| *descriptor)
            .collect();
        stale.into_iter().for_each(|descriptor| self.unwatch(descriptor));
        Ok(())
    }

    fn watch(&self, folder: &Path) -> Result<WatchDescriptor, Errno> {
        let flags = AddWatchFlags::IN_CREATE | AddWatchFlags::IN_MOVED_TO | AddWatchFlags::IN_ONLYDIR;
        self.inotify.add_watch(folder, flags)
    }

    fn unwatch(&mut self, descriptor: WatchDescriptor) {
        self.places.remove(&descriptor);
        // It fails when the folder has gone, and the watch with it.
        let _ = self.inotify.rm_watch(descriptor);
    }

    fn look_at_due(&mut self) {
        let now = Instant::now();
        let mut at = 0;
        while at < self.pending.len() {
            let pending = &self.pending[at];
            let turn = if pending.answer.is_closed() {
                Turn::Failed(HostError::Cancelled)
            } else if pending.schedule.is_due(now) {
                self.look(at)
            } else {
                Turn::Wait
            };
            match turn {
                Turn::Wait => at += 1,
                Turn::Found(sandbox) => {
                    let pending = self.finish(at);
                    self.listen(*sandbox, pending);
                }
                Turn::Failed(error) => {
                    // A caller that has gone does not hear it.
                    let _ = self.finish(at).answer.send(Err(error));
                }
            }
        }
    }

    fn look(&mut self, at: usize) -> Turn {
        let folder = match &self.pending[at].folder {
            Some(folder) => folder.clone(),
            None => match self.find_folder(at) {
                Ok(Some(folder)) => folder,
                Ok(None) => {
                    self.pending[at].schedule.looked(false, Instant::now());
                    return Turn::Wait;
                }
                Err(error) => return Turn::Failed(error),
            },
        };
        let pending = &mut self.pending[at];
        let look = processes::look(&folder, &pending.request.pod_uid, &self.host);
        let now = Instant::now();
        match look {
            // Whatever namespaces a game makes for itself: the pod's sandbox is that of its oldest process, and as before.
            Ok(Look::Found(sandbox)) if Some(sandbox.id) == pending.request.other_than => {
                pending.schedule.looked(true, now);
            }
            Ok(Look::Found(sandbox)) => return Turn::Found(Box::new(sandbox)),
            Ok(Look::Starting) => pending.schedule.looked(true, now),
            Ok(Look::Empty) => pending.schedule.looked(false, now),
            Ok(Look::Gone) => {
                pending.folder = None;
                pending.schedule.looked(false, now);
            }
            Err(error) => return Turn::Failed(error),
        }
        Turn::Wait
    }

    /// Finds the pod's folder and watches it, before it is looked into.
    fn find_folder(&mut self, at: usize) -> Result<Option<PathBuf>, HostError> {
        let uid = self.pending[at].request.pod_uid.clone();
        let Some(folder) = self.hierarchy.pod_folder(&uid) else { return Ok(None) };
        match self.watch(&folder) {
            Ok(descriptor) => {
                self.places.insert(descriptor, Place::Pod(uid));
                self.pending[at].folder = Some(folder.clone());
                Ok(Some(folder))
            }
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(HostError::Watch { source: error.into() }),
        }
    }

    /// Takes one off the list, and its watch with it unless somebody else waits for the same pod.
    fn finish(&mut self, at: usize) -> Pending {
        let done = self.pending.swap_remove(at);
        let uid = &done.request.pod_uid;
        if !self.pending.iter().any(|other| other.request.pod_uid == *uid) {
            let watch = self.places.iter().find(|(_, place)| matches!(place, Place::Pod(pod) if pod == uid));
            if let Some(descriptor) = watch.map(|(descriptor, _)| *descriptor) {
                self.unwatch(descriptor);
            }
        }
        done
    }

    fn listen(&self, sandbox: Sandbox, pending: Pending) {
        let Pending { request, answer, schedule, .. } = pending;
        let metrics = self.metrics.clone();
        let id = sandbox.id;
        let work = move || {
            let result = netns::listen_inside(&sandbox, &request);
            let pod = &request.pod_uid;
            if let Ok(sockets) = &result {
                // A sandbox that was there before anybody asked says nothing about our speed.
                let delay = schedule.stirred().map(|stirred| stirred.elapsed());
                delay.into_iter().for_each(|delay| metrics.sandbox_delay.observe(delay.as_secs_f64()));
                debug!(
                    pod, pid = sandbox.pid, container = sandbox.container, sandbox = %sandbox.id,
                    listeners = sockets.listeners.len(), ?delay, "listening in a sandbox"
                );
            }
            // A caller that has gone meanwhile: the listeners close here.
            let _ = answer.send(result);
        };
        let started = thread::Builder::new().name("sandbox".to_owned()).stack_size(STACK).spawn(work);
        if let Err(error) = started {
            // The closure is gone, and the caller's answer with it: it hears that its watcher is gone, and asks again.
            warn!(%error, sandbox = %id, "could not start a thread to enter a sandbox");
        }
    }

    fn wait(&self) {
        let now = Instant::now();
        let next = self.pending.iter().map(|pending| pending.schedule.next()).min();
        let timeout = next.map(|next| {
            let left = next.saturating_duration_since(now);
            // A pace is far below what a timespec holds.
            Timespec::try_from(left).unwrap_or(Timespec { tv_sec: 1, tv_nsec: 0 })
        });
        let inotify = self.inotify.as_fd();
        let mut descriptors = [PollFd::new(&inotify, PollFlags::IN), PollFd::new(&*self.wake, PollFlags::IN)];
        // A signal makes for one more turn of the loop.
        let _ = poll(&mut descriptors, timeout.as_ref());
        let mut count = [0_u8; 8];
        // Empty when the other one woke us.
        let _ = rustix::io::read(&*self.wake, &mut count);
    }
}
