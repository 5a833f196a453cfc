//! What the API server takes as the key of a label or annotation, and as a label's value.
//! Source: Kubernetes, "Labels and Selectors", syntax and character set.

/// Longest name part of a key, and longest value of a label.
pub const LONGEST_NAME: usize = 63;
/// Longest prefix of a key.
pub const LONGEST_PREFIX: usize = 253;
/// Most bytes of all annotations of an object together.
pub const MOST_ANNOTATION_BYTES: usize = 256 * 1024;

/// What is wrong with a key; `None` where it is good.
pub fn fault_of_key(key: &str) -> Option<String> {
    let (prefix, name) = match key.split_once('/') {
        Some((prefix, name)) => (Some(prefix), name),
        None => (None, key),
    };
    if let Some(prefix) = prefix
        && !is_subdomain(prefix)
    {
        return Some(format!(
            "the part before the '/' must be a DNS subdomain in lower case of at most {LONGEST_PREFIX} characters"
        ));
    }
    (name.len() > LONGEST_NAME || !is_name(name)).then(|| {
        format!(
            "the name must have 1 to {LONGEST_NAME} characters, begin and end with a letter or digit, with letters, \
             digits, '-', '_' and '.' between"
        )
    })
}

/// What is wrong with a label's value; `None` where it is good.
pub fn fault_of_value(value: &str) -> Option<String> {
    (value.len() > LONGEST_NAME || !(value.is_empty() || is_name(value))).then(|| {
        format!(
            "a label's value must be empty, or have at most {LONGEST_NAME} characters, begin and end with a letter or \
             digit, with letters, digits, '-', '_' and '.' between"
        )
    })
}

/// Letters and digits at both ends; letters, digits, `-`, `_` and `.` between.
pub fn is_name(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

fn is_subdomain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_edge =
            |byte: Option<&u8>| byte.is_some_and(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit());
        let bytes = label.as_bytes();
        is_edge(bytes.first())
            && is_edge(bytes.last())
            && bytes.iter().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || *byte == b'-')
    };
    !text.is_empty() && text.len() <= LONGEST_PREFIX && text.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["a", "A.b_c-9", "example.com/a", "agones.dev/sdk-x", &"k".repeat(63)] {
            assert_eq!(fault_of_key(good), None, "{good}");
        }
        for bad in
            ["", "bad key", "-a", "a-", "/a", "Example.com/a", "a/b/c", "a_b/c", "a./c", &"k".repeat(64)]
        {
            assert!(fault_of_key(bad).is_some(), "{bad}");
        }
    }

    #[test]
    fn values() {
        for good in ["", "1", "a.b", &"v".repeat(63)] {
            assert_eq!(fault_of_value(good), None, "{good}");
        }
        for bad in ["not valid!", "-", "a b", "ü", "a/b", &"v".repeat(64)] {
            assert!(fault_of_value(bad).is_some(), "{bad}");
        }
    }
}
