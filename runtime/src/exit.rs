//! How a program starts and ends: parse, run, print what went wrong, and choose the exit code.
//!
//! 0: stopped as asked, 1: failed, 3: done, and the answer is no, 64: bad configuration (`EX_USAGE`). `main` returns what [`run`] gives it.

use std::future::Future;
use std::process::ExitCode;

use clap::Parser;

use crate::error::chain;

/// The exit code for a configuration that cannot be used.
pub const BAD_CONFIGURATION: u8 = 64;

/// The exit code of a question that was answered, with no.
pub const NO: u8 = 3;

/// An answer that is no: the error that [`run`] turns into exit code 3, so that a script can tell it from a failure.
#[derive(Debug, thiserror::Error)]
#[error("{why}")]
pub struct AnswerIsNo {
    /// Why, as a sentence without a full stop.
    pub why: String,
}

/// A configuration that parsed but makes no sense: the error that [`run`] turns into exit code 64.
///
/// `what` names the flag and its limit.
#[derive(Debug, thiserror::Error)]
#[error("bad configuration: {what}")]
pub struct BadConfiguration {
    /// What is wrong, naming the flag or variable and what it may be.
    pub what: String,
}

impl BadConfiguration {
    /// The error with this explanation.
    pub fn new(what: impl Into<String>) -> Self {
        Self { what: what.into() }
    }
}

/// Parses the command line and environment, runs `program` on a multi-threaded runtime, and says how the process ends.
///
/// A [`BadConfiguration`] anywhere among the causes of the error ends with 64 as well.
pub fn run<Settings, Program, Ending, Failure>(program: Program) -> ExitCode
where
    Settings: Parser,
    Program: FnOnce(Settings) -> Ending,
    Ending: Future<Output = Result<(), Failure>>,
    Failure: Into<anyhow::Error>,
{
    let settings = match parse::<Settings>(std::env::args_os()) {
        Ok(settings) => settings,
        Err(code) => return code,
    };
    let runtime = match tokio::runtime::Builder::new_multi_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => return report(&error),
    };
    let code = match runtime.block_on(program(settings)) {
        Ok(()) => ExitCode::SUCCESS,
        // Not through a boxed error: that would hide the type of the outermost one.
        Err(failure) => report(failure.into().as_ref()),
    };
    // A blocking call that hangs must not keep a process alive whose work is over.
    runtime.shutdown_background();
    code
}

/// Parses arguments; what cannot be parsed is explained and becomes the exit code, help and version included.
///
/// # Errors
/// The exit code the process should end with, after clap's own text was printed.
pub fn parse<Settings: Parser>(
    arguments: impl IntoIterator<Item = impl Into<std::ffi::OsString> + Clone>,
) -> Result<Settings, ExitCode> {
    Settings::try_parse_from(arguments).map_err(|error| {
        // Nothing can be done when even stderr is closed.
        let _ = error.print();
        ExitCode::from(usage_code(&error))
    })
}

/// The exit code for what clap says: help and version were asked for, everything else is bad configuration.
#[must_use]
pub fn usage_code(error: &clap::Error) -> u8 {
    use clap::error::ErrorKind;
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => 0,
        _ => BAD_CONFIGURATION,
    }
}

/// Prints the chain once and chooses the exit code.
pub fn report(error: &(dyn std::error::Error + 'static)) -> ExitCode {
    eprintln!("error: {}", chain(error));
    ExitCode::from(failure_code(error))
}

fn failure_code(error: &(dyn std::error::Error + 'static)) -> u8 {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<BadConfiguration>() {
            return BAD_CONFIGURATION;
        }
        if error.is::<AnswerIsNo>() {
            return NO;
        }
        next = error.source();
    }
    1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Parser)]
    #[command(version = "1.2.3")]
    struct Settings {
        #[arg(long)]
        port: u16,
    }

    #[test]
    fn what_clap_refuses_is_bad_configuration_and_what_it_shows_is_not() {
        let cases: [(&str, &[&str], u8); 5] = [
            ("help", &["program", "--help"], 0),
            ("version", &["program", "--version"], 0),
            ("a missing flag", &["program"], 64),
            ("a value out of range", &["program", "--port", "65536"], 64),
            ("an unknown flag", &["program", "--port", "1", "--prot", "1"], 64),
        ];
        for (name, arguments, code) in cases {
            let error = Settings::try_parse_from(arguments).expect_err(name);
            assert_eq!(usage_code(&error), code, "{name}");
        }
        assert_eq!(parse::<Settings>(["program", "--port", "7"]).expect("parses").port, 7);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("could not start")]
    struct Start(#[source] BadConfiguration);

    #[test]
    fn bad_configuration_below_another_error_still_ends_with_64() {
        assert_eq!(failure_code(&Start(BadConfiguration::new("--port must not be 0"))), 64);
        assert_eq!(failure_code(&std::io::Error::other("disk full")), 1);
    }

    #[test]
    fn bad_configuration_that_nothing_is_wrapped_around_ends_with_64_too() {
        let bare = anyhow::Error::new(BadConfiguration::new("--port must not be 0"));
        assert_eq!(failure_code(bare.as_ref()), 64);
        assert_eq!(failure_code(bare.context("could not start").as_ref()), 64);
    }
}
