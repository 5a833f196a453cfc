//! The file of the journal: tables, commits, and what to do with a file that is broken or of another format.

use std::any::Any;
use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use berth_api::link::{Asked, Sequence, ServerUid};
use berth_runtime::error::chain;
use jiff::Timestamp;
use redb::{Database, ReadableDatabase as _, ReadableTable as _, Table, TableDefinition};
use tracing::{error, warn};

use super::JournalError;
use crate::server::page::{Draft, Numbered, Record};

const FILE: &str = "journal.redb";
/// Version of the tables below.
///
/// Version 1 knew neither what a game could see nor counters, lists and players; what it holds is read as it is.
const FORMAT: u64 = 2;
const OLDER: u64 = 1;
/// Facts about the file itself.
const ABOUT: TableDefinition<'_, &str, u64> = TableDefinition::new("about");
const ABOUT_FORMAT: &str = "format";
/// 1 where a journal stood here before that is lost.
const ABOUT_LOST: &str = "lost";
/// When the file was opened last, in Unix seconds: writing it shows whether it can be written.
const ABOUT_OPENED: &str = "opened";
/// The last number that was given, by server.
const LAST: TableDefinition<'_, &str, u64> = TableDefinition::new("last");
/// What is not confirmed, by server and number, as JSON.
const CHANGES: TableDefinition<'_, (&str, u64), &[u8]> = TableDefinition::new("changes");

/// Pages of the file that are kept in memory. What waits for an agent is small, nearly always nothing.
const CACHE: usize = 4 * 1024 * 1024;
/// Most servers that are read back; an agent serves as many. Those beyond are read once others are forgotten.
const MOST_SERVERS: usize = 4096;
/// Files that are kept aside.
const MOST_ASIDE: usize = 4;

/// The open journal.
pub(crate) struct Store {
    /// Taken only when the value is dropped.
    database: Option<Database>,
    /// Bytes of all changes.
    bytes: u64,
    is_lost: bool,
}

/// What was found when the journal was opened.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// The servers that stand in it.
    pub(crate) servers: Vec<ServerUid>,
    /// A file had to be set aside.
    pub(crate) was_set_aside: bool,
}

impl Store {
    /// Opens the journal in a folder, or begins one. What cannot be read is set aside.
    pub(crate) fn open(folder: &Path, now: Timestamp) -> Result<Opened, JournalError> {
        fs::create_dir_all(folder)
            .map_err(|source| JournalError::Folder { path: folder.to_owned(), source })?;
        let path = folder.join(FILE);
        let (why, broken) = match Self::open_file(&path, now) {
            Ok((store, servers)) => return Ok(Opened { store, servers, was_set_aside: false }),
            Err(broken @ JournalError::Corrupt { .. }) => ("corrupt", broken),
            Err(other @ JournalError::Format { .. }) => ("other-format", other),
            Err(error) => return Err(error),
        };
        let aside = folder.join(format!("{FILE}.{why}-{}", now.strftime("%Y-%m-%dT%H-%M-%S%.3fZ")));
        fs::rename(&path, &aside).map_err(|source| JournalError::SetAside { path: path.clone(), source })?;
        error!(
            error = %chain(&broken),
            set_aside = %aside.display(),
            "the journal is lost and a new one begun; changes that were answered and not yet applied may be missing"
        );
        forget_oldest_aside(folder);
        let (store, servers) = Self::open_file(&path, now)?;
        Ok(Opened { store, servers, was_set_aside: true })
    }

    fn open_file(path: &Path, now: Timestamp) -> Result<(Self, Vec<ServerUid>), JournalError> {
        // A file that is empty is no journal, but there may have been one.
        let was_there = path.exists() || !aside(path.parent().unwrap_or(path)).is_empty();
        let corrupt = |what| JournalError::Corrupt { what };
        guarded(|| {
            let mut builder = Database::builder();
            builder.set_cache_size(CACHE).set_check_integrity_on_open(true);
            let database = builder.create(path).map_err(|error| on_open(error.into(), path))?;
            Self::begin(database, was_there, now).map_err(|error| match error {
                JournalError::Write(source) | JournalError::Read(source) => on_open(source, path),
                other => other,
            })
        })
        // Nothing but a broken file makes it panic while it is opened.
        .map_err(corrupt)?
    }

    /// Checks what there is, or makes what is missing; and writes, so that it is known that it can be.
    fn begin(
        database: Database,
        was_there: bool,
        now: Timestamp,
    ) -> Result<(Self, Vec<ServerUid>), JournalError> {
        let transaction = database.begin_write().map_err(written)?;
        let is_lost = {
            let mut about = transaction.open_table(ABOUT).map_err(written)?;
            let format = about.get(ABOUT_FORMAT).map_err(read)?.map(|format| format.value());
            match format {
                Some(FORMAT) => {}
                Some(OLDER) => drop(about.insert(ABOUT_FORMAT, FORMAT).map_err(written)?),
                Some(other) => {
                    let what = format!("{other}, we know {OLDER} and {FORMAT}");
                    return Err(JournalError::Format { what });
                }
                None => {
                    about.insert(ABOUT_FORMAT, FORMAT).map_err(written)?;
                    about.insert(ABOUT_LOST, u64::from(was_there)).map_err(written)?;
                }
            }
            let seconds = u64::try_from(now.as_second()).unwrap_or_default();
            about.insert(ABOUT_OPENED, seconds).map_err(written)?;
            transaction.open_table(LAST).map_err(written)?;
            transaction.open_table(CHANGES).map_err(written)?;
            about.get(ABOUT_LOST).map_err(read)?.is_some_and(|lost| lost.value() == 1)
        };
        transaction.commit().map_err(written)?;
        let mut store = Self { database: Some(database), bytes: 0, is_lost };
        store.bytes = store.check()?;
        let servers = store.servers()?;
        Ok((store, servers))
    }

    /// Bytes of all changes, each of which can be read. One is in memory at a time.
    fn check(&self) -> Result<u64, JournalError> {
        let transaction = self.database()?.begin_read().map_err(read)?;
        let changes = transaction.open_table(CHANGES).map_err(read)?;
        let mut bytes = 0;
        for entry in changes.iter().map_err(read)? {
            let (_, value) = entry.map_err(read)?;
            decode(value.value())?;
            bytes += length(value.value());
        }
        Ok(bytes)
    }

    fn servers(&self) -> Result<Vec<ServerUid>, JournalError> {
        let transaction = self.database()?.begin_read().map_err(read)?;
        let last = transaction.open_table(LAST).map_err(read)?;
        let uids = last.iter().map_err(read)?.take(MOST_SERVERS);
        let uids: Result<Vec<_>, _> =
            uids.map(|entry| entry.map(|(uid, _)| ServerUid(uid.value().to_owned()))).collect();
        uids.map_err(read)
    }

    /// Bytes of all changes that are in it.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// An earlier journal is lost.
    pub(crate) fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// What stands in it of a server.
    pub(crate) fn record(&self, uid: &ServerUid) -> Result<Option<Record>, JournalError> {
        let looked = guarded(|| {
            let transaction = self.database()?.begin_read().map_err(read)?;
            let last = transaction.open_table(LAST).map_err(read)?;
            let Some(last) = last.get(uid.0.as_str()).map_err(read)?.map(|last| last.value()) else {
                return Ok(None);
            };
            let table = transaction.open_table(CHANGES).map_err(read)?;
            let mut record = Record { last: Sequence(last), changes: Vec::new() };
            for entry in table.range((uid.0.as_str(), 0)..=(uid.0.as_str(), u64::MAX)).map_err(read)? {
                let (key, value) = entry.map_err(read)?;
                let sequence = Sequence(key.value().1);
                record.last = record.last.max(sequence);
                record.changes.push(Numbered { sequence, asked: Arc::new(decode(value.value())?) });
            }
            Ok(Some(record))
        });
        looked.map_err(|what| JournalError::Panicked { what })?
    }

    /// Writes everything or nothing, and answers when it is on disk. What is forgotten goes first.
    pub(crate) fn commit(
        &mut self,
        forgotten: impl Iterator<Item = ServerUid>,
        drafts: &[(ServerUid, Draft)],
    ) -> Result<(), JournalError> {
        let mut bytes = self.bytes;
        let committed = guarded(|| {
            let transaction = self.database()?.begin_write().map_err(written)?;
            {
                let mut last = transaction.open_table(LAST).map_err(written)?;
                let mut changes = transaction.open_table(CHANGES).map_err(written)?;
                for uid in forgotten {
                    last.remove(uid.0.as_str()).map_err(written)?;
                    bytes -= remove(&mut changes, &uid, u64::MAX)?;
                }
                for (uid, draft) in drafts {
                    if draft.is_rewrite {
                        bytes -= remove(&mut changes, uid, u64::MAX)?;
                    } else if let Some(trim) = draft.trim {
                        bytes -= remove(&mut changes, uid, trim.0)?;
                    }
                    for put in &draft.puts {
                        let value = serde_json::to_vec(&*put.asked).map_err(JournalError::Encode)?;
                        let key = (uid.0.as_str(), put.sequence.0);
                        let old = changes.insert(key, value.as_slice()).map_err(written)?;
                        bytes = bytes + length(&value) - old.map_or(0, |old| length(old.value()));
                    }
                    match draft.last {
                        Sequence(0) => drop(last.remove(uid.0.as_str()).map_err(written)?),
                        Sequence(number) => drop(last.insert(uid.0.as_str(), number).map_err(written)?),
                    }
                }
            }
            transaction.commit().map_err(written)
        });
        committed.map_err(|what| JournalError::Panicked { what })??;
        self.bytes = bytes;
        Ok(())
    }

    fn database(&self) -> Result<&Database, JournalError> {
        // It is there for as long as anybody has the value.
        self.database.as_ref().ok_or(JournalError::Write(redb::Error::DatabaseClosed))
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let database = self.database.take();
        if let Err(what) = guarded(|| drop(database)) {
            warn!(error = %what, "the journal did not close well; it is repaired when it is opened");
        }
    }
}

/// Removes the changes of a server up to a number, and says how many bytes they had.
fn remove(
    changes: &mut Table<'_, (&'static str, u64), &'static [u8]>,
    uid: &ServerUid,
    until: u64,
) -> Result<u64, JournalError> {
    let mut freed = 0;
    let range = (uid.0.as_str(), 0)..=(uid.0.as_str(), until);
    let removed = changes.retain_in(range, |_, value| {
        freed += length(value);
        false
    });
    removed.map_err(written)?;
    Ok(freed)
}

fn decode(value: &[u8]) -> Result<Asked, JournalError> {
    serde_json::from_slice(value)
        .map_err(|error| JournalError::Corrupt { what: format!("a change that cannot be read: {error}") })
}

fn length(value: &[u8]) -> u64 {
    value.len() as u64
}

fn written(error: impl Into<redb::Error>) -> JournalError {
    JournalError::Write(error.into())
}

fn read(error: impl Into<redb::Error>) -> JournalError {
    JournalError::Read(error.into())
}

/// What an error means while a file is opened: a broken file, another format, somebody else's file, or a bad disk.
fn on_open(error: redb::Error, path: &Path) -> JournalError {
    use redb::Error as E;
    let path = path.to_owned();
    match error {
        E::DatabaseAlreadyOpen | E::LockProtocolMismatch => JournalError::Held { path },
        E::UpgradeRequired(version) => {
            JournalError::Format { what: format!("version {version} of the store") }
        }
        E::Corrupted(what) => JournalError::Corrupt { what },
        E::Io(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            JournalError::Corrupt { what: error.to_string() }
        }
        error @ (E::TableTypeMismatch { .. }
        | E::TableIsMultimap(_)
        | E::TableIsNotMultimap(_)
        | E::TypeDefinitionChanged { .. }
        | E::RepairAborted) => JournalError::Corrupt { what: error.to_string() },
        source => JournalError::Open { path, source },
    }
}

/// The store is not ours: it may panic over what a broken disk gives it, which must not end the process.
fn guarded<T>(work: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|panic| said(panic.as_ref()))
}

fn said(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

/// The files that were set aside, in the order of their times.
fn aside(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let mut found: Vec<(String, PathBuf)> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let rest = name.strip_prefix(FILE)?.strip_prefix('.')?;
            let time = rest.strip_prefix("corrupt-").or_else(|| rest.strip_prefix("other-format-"))?;
            Some((time.to_owned(), entry.path()))
        })
        .collect();
    found.sort();
    found.into_iter().map(|(_, path)| path).collect()
}

/// Keeps what is set aside from filling the disk.
fn forget_oldest_aside(folder: &Path) {
    let found = aside(folder);
    for path in found.iter().take(found.len().saturating_sub(MOST_ASIDE)) {
        if let Err(error) = fs::remove_file(path) {
            warn!(path = %path.display(), error = %error, "could not remove an old journal that was set aside");
        }
    }
}

#[cfg(test)]
mod tests;
