//! Logs: one subscriber for the process, to stderr, as text for people or JSON for collectors.
//!
//! Fields carry the facts; the level filter takes the usual `target=level` list.

use clap::ValueEnum;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::util::TryInitError;

/// How to log; flatten this into a program's settings.
#[derive(Debug, Clone, PartialEq, Eq, clap::Args)]
pub struct LogSettings {
    /// Log level, or a list such as `info,berth_agent=debug`
    #[arg(long = "log-level", env = "BERTH_LOG", default_value = "info", value_parser = level)]
    pub level: String,
    /// Log format
    #[arg(long = "log-format", env = "BERTH_LOG_FORMAT", default_value = "text")]
    pub format: LogFormat,
}

impl Default for LogSettings {
    fn default() -> Self {
        Self { level: "info".to_owned(), format: LogFormat::Text }
    }
}

/// What a log line looks like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// One readable line each.
    Text,
    /// One JSON object each.
    Json,
}

/// Why logging could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum TelemetryError {
    /// The level list does not parse.
    #[error("log level {level:?} is not a level or a list of target=level")]
    Level {
        /// What was given.
        level: String,
        /// What the parser says.
        source: tracing_subscriber::filter::ParseError,
    },
    /// The process has a subscriber already.
    #[error("could not install the log subscriber")]
    Install {
        /// What tracing says.
        source: TryInitError,
    },
}

/// Installs the subscriber of this process.
///
/// # Errors
/// When the level does not parse, or a subscriber was installed before.
pub fn init(settings: &LogSettings) -> Result<(), TelemetryError> {
    use tracing_subscriber::util::SubscriberInitExt as _;

    let filter = filter(&settings.level)?;
    let base = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr);
    match settings.format {
        LogFormat::Text => base.with_ansi(false).finish().try_init(),
        LogFormat::Json => base.json().flatten_event(true).finish().try_init(),
    }
    .map_err(|source| TelemetryError::Install { source })
}

fn filter(level: &str) -> Result<EnvFilter, TelemetryError> {
    EnvFilter::builder()
        .parse(level)
        .map_err(|source| TelemetryError::Level { level: level.to_owned(), source })
}

fn level(text: &str) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("must not be empty; try info".to_owned());
    }
    // A bare word that is no level would otherwise be taken for a target and enable everything in it.
    let bare_words_are_levels = text
        .split(',')
        .filter(|part| !part.contains(['=', '[', ':']))
        .all(|part| part.trim().parse::<tracing_subscriber::filter::LevelFilter>().is_ok());
    if !bare_words_are_levels {
        return Err("must be off, error, warn, info, debug or trace, or a list of target=level".to_owned());
    }
    filter(text).map(|_| text.to_owned()).map_err(|error| crate::error::chain(&error))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Settings {
        #[command(flatten)]
        log: LogSettings,
    }

    #[test]
    fn levels_are_checked_when_parsed() {
        for (given, accepted) in [
            ("info", true),
            ("info,berth_agent=debug", true),
            ("warn,kube::client=trace", true),
            ("loud", false),
            ("berth_agent=loud", false),
            ("", false),
        ] {
            let parsed = Settings::try_parse_from(["program", "--log-level", given]);
            assert_eq!(parsed.is_ok(), accepted, "{given:?}: {parsed:?}");
        }
    }

    #[test]
    fn formats_are_words() {
        let settings = Settings::try_parse_from(["program", "--log-format", "json"]).unwrap();
        assert_eq!(settings.log.format, LogFormat::Json);
        assert!(Settings::try_parse_from(["program", "--log-format", "xml"]).is_err());
    }

    #[test]
    fn a_second_subscriber_is_an_error_not_a_panic() {
        let settings = LogSettings::default();
        let first = init(&settings);
        let second = init(&settings);
        assert!(first.is_err() || second.is_err());
    }
}
