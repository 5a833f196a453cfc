//! Printing an error with everything that caused it, on one line.
//!
//! Modules keep the cause out of their messages and in `source`; this is where the two meet again. Some libraries
//! repeat the cause in their own message; a cause that the line already ends with is not said twice.

use std::error::Error;

/// Any error that may cross a task border.
pub type BoxError = Box<dyn Error + Send + Sync + 'static>;

/// The error and its causes, outermost first, joined with `: ` on one line.
#[must_use]
pub fn chain(error: &(dyn Error + 'static)) -> String {
    let mut line = flat(error);
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = flat(error);
        if !line.ends_with(&text) {
            line.push_str(": ");
            line.push_str(&text);
        }
        cause = error.source();
    }
    line
}

fn flat(error: &dyn Error) -> String {
    error.to_string().split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("could not renew the lease")]
    struct Outer(#[source] Middle);

    #[derive(Debug, thiserror::Error)]
    #[error("could not reach the API server: {0}")]
    struct Middle(#[source] std::io::Error);

    #[test]
    fn every_cause_is_said_once_and_on_one_line() {
        let error = Outer(Middle(std::io::Error::other("connection\n  refused")));
        assert_eq!(
            chain(&error),
            "could not renew the lease: could not reach the API server: connection refused"
        );
    }

    #[test]
    fn an_error_without_a_cause_is_itself() {
        assert_eq!(chain(&std::io::Error::other("alone")), "alone");
    }
}
