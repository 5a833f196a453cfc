//! Running one of the machine's tools to its end and taking what it says.

use std::ffi::OsStr;
use std::io;
use std::process::{Command, Output};

/// A tool that could not be run, or that failed.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// It is not there, or may not be executed.
    #[error("could not run `{line}`")]
    Start {
        /// The command line.
        line: String,
        /// Why.
        source: io::Error,
    },
    /// It ran and said no.
    #[error("`{line}` failed ({status}): {complaint}")]
    Failed {
        /// The command line.
        line: String,
        /// How it ended.
        status: String,
        /// The end of what it wrote on its error output.
        complaint: String,
    },
}

/// Runs `program` and returns its standard output.
///
/// # Errors
/// When it cannot be started or ends with anything but success.
pub(crate) fn run<Argument: AsRef<OsStr>>(
    program: &str,
    arguments: impl IntoIterator<Item = Argument>,
) -> Result<String, CommandError> {
    let mut command = Command::new(program);
    command.args(arguments);
    finish(command)
}

/// Runs a prepared command and returns its standard output.
///
/// # Errors
/// As [`run`].
pub(crate) fn finish(mut command: Command) -> Result<String, CommandError> {
    let line = line_of(&command);
    let output = command
        .stdin(std::process::Stdio::null())
        .output()
        .map_err(|source| CommandError::Start { line: line.clone(), source })?;
    judge(line, &output)
}

/// What a command that came to its end has to say.
///
/// # Errors
/// [`CommandError::Failed`] when it ended with anything but success.
pub(crate) fn judge(line: String, output: &Output) -> Result<String, CommandError> {
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let complaint = String::from_utf8_lossy(&output.stderr);
    let complaint = last_lines(complaint.trim(), 20).to_owned();
    Err(CommandError::Failed { line, status: output.status.to_string(), complaint })
}

/// The command as a person would type it.
pub(crate) fn line_of(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

/// The last `count` lines of a text.
pub(crate) fn last_lines(text: &str, count: usize) -> &str {
    let start = text.rmatch_indices('\n').nth(count.saturating_sub(1)).map_or(0, |(at, _)| at + 1);
    &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_carries_the_command_line_and_its_complaint() {
        let error = run("sh", ["-c", "echo no such harbour >&2; exit 3"]).unwrap_err().to_string();
        assert!(error.contains("no such harbour") && error.contains("exit status: 3"), "{error}");
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        assert_eq!(last_lines("a\nb\nc", 2), "b\nc");
        assert_eq!(last_lines("a", 2), "a");
    }
}
