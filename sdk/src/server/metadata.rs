//! Which labels and annotations a game may set: the rules of the API server, told at the call. Pure.
//!
//! A key is stored under the SDK's prefix, so it must still be a key with the prefix before it: it has no `/` of its
//! own and is that much shorter. What passes here is never refused by the API server later, where nobody could tell
//! the game.

use std::collections::BTreeMap;

use berth_api::names::SDK_PREFIX;

/// Longest name part of a key, and longest value of a label.
const LONGEST_NAME: usize = 63;
/// What the API server allows for all annotations of an object is 256 KiB; 8 KiB of it stay for Berth's own.
const MOST_BYTES: usize = 248 * 1024;

/// Why a label or annotation is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum MetadataError {
    #[error("the key {key:?} has a prefix of its own; it is stored under {SDK_PREFIX}")]
    Prefixed { key: String },
    #[error("the key has {length} characters; at most {longest} are allowed")]
    LongKey { length: usize, longest: usize },
    #[error(
        "the key {key:?} must begin and end with a letter or digit, with letters, digits, '-', '_' and '.' between"
    )]
    Key { key: String },
    #[error("the value has {length} characters; a label's has at most {LONGEST_NAME}")]
    LongValue { length: usize },
    #[error(
        "the value {value:?} must begin and end with a letter or digit, with letters, digits, '-', '_' and '.' between"
    )]
    Value { value: String },
    #[error("keys and values would come to {bytes} bytes together; at most {MOST_BYTES} are allowed")]
    TooMuch { bytes: usize },
}

/// Checks a key as the game gave it.
pub(crate) fn check_key(key: &str) -> Result<(), MetadataError> {
    // The prefix's own name part ("sdk-") counts towards the name's length.
    let own = SDK_PREFIX.rsplit('/').next().map_or(0, str::len);
    let longest = LONGEST_NAME - own;
    if key.contains('/') {
        return Err(MetadataError::Prefixed { key: shortened(key) });
    }
    if !is_name(key) {
        return Err(MetadataError::Key { key: shortened(key) });
    }
    if key.len() > longest {
        return Err(MetadataError::LongKey { length: key.len(), longest });
    }
    Ok(())
}

/// Checks a label's value.
pub(crate) fn check_label_value(value: &str) -> Result<(), MetadataError> {
    if value.len() > LONGEST_NAME {
        return Err(MetadataError::LongValue { length: value.len() });
    }
    if value.is_empty() || is_name(value) {
        Ok(())
    } else {
        Err(MetadataError::Value { value: shortened(value) })
    }
}

/// Checks that everything together still fits when `key` gets `value`: `present` is what the object has, `pending` what
/// the game was promised, its keys without the prefix.
pub(crate) fn check_room<'a>(
    present: &BTreeMap<String, String>,
    pending: impl Iterator<Item = (&'a str, &'a str)>,
    (key, value): (&str, &str),
) -> Result<(), MetadataError> {
    let mut sizes: BTreeMap<&str, usize> = BTreeMap::new();
    let mut foreign = 0;
    for (key, value) in present {
        match key.strip_prefix(SDK_PREFIX) {
            Some(own) => drop(sizes.insert(own, value.len())),
            None => foreign += key.len() + value.len(),
        }
    }
    sizes.extend(pending.map(|(key, value)| (key, value.len())));
    sizes.insert(key, value.len());
    let own: usize = sizes.iter().map(|(key, value)| SDK_PREFIX.len() + key.len() + value).sum();
    let bytes = foreign + own;
    if bytes > MOST_BYTES { Err(MetadataError::TooMuch { bytes }) } else { Ok(()) }
}

fn is_name(text: &str) -> bool {
    let is_edge = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
    let bytes = text.as_bytes();
    is_edge(bytes.first())
        && is_edge(bytes.last())
        && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.'))
}

/// Enough of a bad text to recognise it, in an answer that stays short.
fn shortened(text: &str) -> String {
    text.chars().take(LONGEST_NAME + 1).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys() {
        for good in ["foo", "a", "A.b_c-9", &"k".repeat(59)] {
            assert_eq!(check_key(good), Ok(()), "{good}");
        }
        for bad in ["", "bad key", "a/b", "example.com/a", "-a", "a-", "a.", "ä", "a\n", &"k".repeat(60)] {
            assert!(check_key(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn label_values() {
        for good in ["", "1", "a.b", &"v".repeat(63)] {
            assert_eq!(check_label_value(good), Ok(()), "{good}");
        }
        for bad in ["not valid!", "-", "a b", "ü", &"v".repeat(64)] {
            assert!(check_label_value(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn all_annotations_together_must_fit() {
        let half = "x".repeat(MOST_BYTES / 2);
        let present = BTreeMap::from([
            (format!("{SDK_PREFIX}old"), half.clone()),
            ("example.com/foreign".to_owned(), "value".to_owned()),
        ]);
        let none = || std::iter::empty::<(&str, &str)>();
        assert!(check_room(&present, none(), ("new", &half)).is_err());
        assert_eq!(check_room(&present, none(), ("old", &half)), Ok(()), "its own old value does not count");
        assert!(
            check_room(&BTreeMap::new(), [("pending", half.as_str())].into_iter(), ("new", &half)).is_err()
        );
        assert_eq!(check_room(&present, [("old", "small")].into_iter(), ("new", &half)), Ok(()));
    }

    #[test]
    fn an_answer_does_not_repeat_a_huge_key() {
        let error = check_key(&" ".repeat(100_000)).unwrap_err();
        assert!(error.to_string().len() < 300, "{error}");
    }
}
