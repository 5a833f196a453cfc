//! Refusing a control plane that is too old, in a sentence, at the start.

use std::time::Duration;

use super::bounded::{CallError, within};

/// How long the question may take.
const LIMIT: Duration = Duration::from_secs(15);

/// Why the API server's version does not do.
#[derive(Debug, thiserror::Error)]
pub enum VersionError {
    /// The version could not be asked for.
    #[error("could not ask the API server for its version; check its address and that it runs")]
    Ask {
        /// What the call says.
        #[from]
        source: CallError,
    },
    /// The version is no pair of numbers.
    #[error("could not read the API server's version {major:?}.{minor:?}")]
    Unreadable {
        /// The major version as given.
        major: String,
        /// The minor version as given.
        minor: String,
    },
    /// The version is too old.
    #[error(
        "Kubernetes {found} is too old: {needed} or newer is needed; upgrade the control plane, then start again"
    )]
    TooOld {
        /// What the server is.
        found: String,
        /// The oldest that does.
        needed: String,
    },
}

/// Asks the API server for its version and refuses one older than `major.minor`.
///
/// # Errors
/// When it is older, or cannot be asked.
pub async fn require_version(client: &kube::Client, major: u32, minor: u32) -> Result<(), VersionError> {
    let info = within(LIMIT, client.apiserver_version()).await?;
    check(&info.major, &info.minor, (major, minor))
}

fn check(major: &str, minor: &str, needed: (u32, u32)) -> Result<(), VersionError> {
    // Providers append a plus to the minor version: "32+".
    let number = |text: &str| text.trim_end_matches('+').parse::<u32>().ok();
    let (Some(found_major), Some(found_minor)) = (number(major), number(minor)) else {
        return Err(VersionError::Unreadable { major: major.to_owned(), minor: minor.to_owned() });
    };
    if (found_major, found_minor) < needed {
        return Err(VersionError::TooOld {
            found: format!("{found_major}.{found_minor}"),
            needed: format!("{}.{}", needed.0, needed.1),
        });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_compared_as_numbers() {
        for (major, minor, does) in
            [("1", "32", true), ("1", "32+", true), ("1", "100", true), ("2", "0", true), ("1", "9", false)]
        {
            assert_eq!(check(major, minor, (1, 32)).is_ok(), does, "{major}.{minor}");
        }
    }

    #[test]
    fn the_refusal_names_both_versions_and_the_remedy() {
        let error = check("1", "31+", (1, 32)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Kubernetes 1.31 is too old: 1.32 or newer is needed; upgrade the control plane, then start again"
        );
        assert!(check("one", "32", (1, 32)).is_err());
    }
}
