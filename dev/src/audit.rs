//! The API server's own log of writes, read as it grows: what a cluster did, as the one who was asked tells it.

use std::fs::File;
use std::io::{self, BufRead as _, BufReader};
use std::path::Path;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;

/// One write that was answered, whatever the answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Who asked.
    pub user: String,
    /// `create`, `update`, `patch`, `delete` or `deletecollection`.
    pub verb: String,
    /// Kind of the object, in the plural.
    pub resource: String,
    /// Part of it that was asked for; empty for all of it.
    pub subresource: String,
    /// Its namespace; empty for an object without.
    pub namespace: String,
    /// Its name; empty where the server chose it.
    pub name: String,
    /// HTTP status of the answer.
    pub code: u16,
    /// How long the answer took.
    pub took: Duration,
}

impl Write {
    /// Whether something was written.
    #[must_use]
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.code)
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line {
    verb: String,
    user: User,
    object_ref: Option<Object>,
    response_status: Option<Status>,
    stage: String,
    request_received_timestamp: Timestamp,
    stage_timestamp: Timestamp,
}

#[derive(Deserialize)]
struct User {
    #[serde(default)]
    username: String,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
    namespace: String,
    name: String,
}

#[derive(Deserialize)]
struct Status {
    code: u16,
}

/// A log, read up to some point.
#[derive(Debug)]
pub struct AuditLog {
    file: BufReader<File>,
    /// A line that was not complete yet.
    begun: String,
}

impl AuditLog {
    /// Opens a log at its beginning.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { file: BufReader::new(File::open(path)?), begun: String::new() })
    }

    /// What was written since the last time, in the order of the answers.
    ///
    /// # Errors
    /// It cannot be read, or holds a line that is none of an audit log.
    pub fn news(&mut self) -> io::Result<Vec<Write>> {
        let mut found = Vec::new();
        while self.file.read_line(&mut self.begun)? > 0 {
            if !self.begun.ends_with('\n') {
                break;
            }
            let line: Line = serde_json::from_str(&self.begun)?;
            self.begun.clear();
            if line.stage == "ResponseComplete" {
                let took = line.stage_timestamp.duration_since(line.request_received_timestamp);
                let object = line.object_ref.unwrap_or_default();
                found.push(Write {
                    user: line.user.username,
                    verb: line.verb,
                    resource: object.resource,
                    subresource: object.subresource,
                    namespace: object.namespace,
                    name: object.name,
                    code: line.response_status.map_or(0, |status| status.code),
                    took: took.unsigned_abs(),
                });
            }
        }
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    #[test]
    fn a_log_is_read_as_it_grows() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("log");
        let mut file = File::create(&path).unwrap();
        let line = r#"{"stage":"ResponseComplete","requestReceivedTimestamp":"2025-01-01T00:00:00.5Z","stageTimestamp":"2025-01-01T00:00:01Z","verb":"create","user":{"username":"u"},"objectRef":{"resource":"pods","namespace":"n","name":"p"},"responseStatus":{"code":201}}"#;
        let (first, rest) = line.split_at(40);
        writeln!(file, "{line}").unwrap();
        write!(file, "{first}").unwrap();
        let mut log = AuditLog::open(&path).unwrap();
        let seen = log.news().unwrap();
        assert_eq!(seen.len(), 1);
        assert!(seen[0].succeeded() && seen[0].resource == "pods" && seen[0].name == "p");
        assert_eq!(seen[0].took, Duration::from_millis(500));
        writeln!(file, "{rest}").unwrap();
        assert_eq!(log.news().unwrap(), seen);
        assert_eq!(log.news().unwrap(), []);
    }
}
