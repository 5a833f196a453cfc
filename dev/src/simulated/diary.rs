//! What happened to the pods of a node, a line of JSON each, for tests to read.

use std::fs::File;
use std::io::Write as _;
use std::rc::Rc;

use jiff::Timestamp;
use serde_json::{Value, json};
use tracing::warn;

/// Where what happens to one pod is written down.
#[derive(Clone, Debug)]
pub(super) struct Diary {
    file: Rc<File>,
    pod: Rc<(String, String)>,
}

impl Diary {
    pub(super) fn new(file: Rc<File>, pod: String, uid: String) -> Self {
        Self { file, pod: Rc::new((pod, uid)) }
    }

    /// Adds a line, in one write.
    pub(super) fn note(&self, entry: &Value) {
        let mut line = entry.clone();
        line["pod"] = json!(self.pod.0);
        line["uid"] = json!(self.pod.1);
        line["at"] = json!(Timestamp::now().to_string());
        if let Err(error) = (&*self.file).write_all(format!("{line}\n").as_bytes()) {
            warn!(%error, "could not write the diary");
        }
    }
}
