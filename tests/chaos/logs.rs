//! What remains of a story that went wrong.

use std::path::PathBuf;
use std::process::Command;

use berth_stories::harbour::Harbour;

/// Copies the logs of all programs to where they outlive the harbour.
pub(crate) fn keep(harbour: &Harbour, name: &str) -> Option<PathBuf> {
    let logs = harbour.cluster.instance().folder().join("logs");
    let kept = std::env::temp_dir().join(name);
    let copied = Command::new("cp").arg("-r").arg(logs).arg(&kept).status();
    copied.is_ok_and(|status| status.success()).then_some(kept)
}
