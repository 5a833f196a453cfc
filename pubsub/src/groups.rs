//! Which game server groups there are to look at: the text of `fleetiq.conf`, read. Pure.
//!
//! The text is a JSON object with a member `GameServerGroups`, an array of names or ARNs. What is no name costs its own
//! group only; a text of which nothing can be used is an error, and then the list that was read before stays.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

/// The key of the ConfigMap, and the last name of the file.
pub const FILE_NAME: &str = "fleetiq.conf";
/// Groups that an account may have in one region, unless AWS was asked for more.
pub const USUAL_MOST: usize = 20;
/// The longest name or ARN.
const LONGEST_NAME: usize = 256;
/// What stands before the name in an ARN.
const ARN_PART: &str = ":gameservergroup/";

/// A game server group: how it is asked for, and its name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Group {
    name: String,
    asked: String,
}

impl Group {
    /// Reads a name or an ARN.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let name = match text.split_once(ARN_PART) {
            Some((arn, name)) if arn.starts_with("arn:") => name,
            Some(_) => return None,
            None => text,
        };
        let is_letter = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '.');
        let is_name = !name.is_empty() && text.len() <= LONGEST_NAME && name.chars().all(is_letter);
        is_name.then(|| Self { name: name.to_owned(), asked: text.to_owned() })
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// What AWS is asked with: the name or the ARN, as it was written.
    #[must_use]
    pub fn asked(&self) -> &str {
        &self.asked
    }

    /// Its Auto Scaling group.
    #[must_use]
    pub fn scaling_group(&self) -> String {
        format!("gamelift-gameservergroup-{}", self.name)
    }
}

impl fmt::Display for Group {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.name)
    }
}

/// What a text says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Groups {
    /// In the order in which they are written, each once.
    pub groups: Vec<Group>,
    /// Entries that are no names, as they are written.
    pub refused: Vec<String>,
}

/// Why a text says nothing.
#[derive(Debug, thiserror::Error)]
pub enum GroupsError {
    /// It is something else.
    #[error("it is not a JSON object with an array GameServerGroups")]
    Json(#[from] serde_json::Error),
    /// It names nothing.
    #[error("it names no game server group")]
    Empty,
    /// All of it is wrong.
    #[error("none of its entries is a name of a game server group: {0}")]
    NoName(String),
}

#[derive(Deserialize)]
struct Document {
    #[serde(rename = "GameServerGroups")]
    groups: Vec<Value>,
}

/// Reads the text.
///
/// # Errors
/// When it names no group.
pub fn read(text: &str) -> Result<Groups, GroupsError> {
    let document: Document = serde_json::from_str(text)?;
    let mut read = Groups { groups: Vec::new(), refused: Vec::new() };
    for entry in document.groups {
        match entry.as_str().and_then(Group::parse) {
            Some(group) if read.groups.iter().any(|known| known.name == group.name) => {}
            Some(group) => read.groups.push(group),
            None => read.refused.push(entry.to_string()),
        }
    }
    match (read.groups.is_empty(), read.refused.is_empty()) {
        (true, true) => Err(GroupsError::Empty),
        (true, false) => Err(GroupsError::NoName(read.refused.join(", "))),
        (false, _) => Ok(read),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARN: &str = "arn:aws:gamelift:eu-central-1:111122223333:gameservergroup/pvp-eu";

    fn names(text: &str) -> Vec<String> {
        read(text).unwrap().groups.iter().map(|group| group.name.clone()).collect()
    }

    #[test]
    fn names_and_arns_are_read_each_once() {
        assert_eq!(names(r#"{"GameServerGroups": [ "pvp-eu", "pve-eu" ]}"#), ["pvp-eu", "pve-eu"]);
        assert_eq!(names(r#"{"Other": 1, "GameServerGroups": ["b", "a", "b"]}"#), ["b", "a"]);
        let read = read(&format!(r#"{{"GameServerGroups": ["{ARN}", "pvp-eu"]}}"#)).unwrap();
        assert_eq!(read.groups.len(), 1);
        assert_eq!((read.groups[0].name(), read.groups[0].asked()), ("pvp-eu", ARN));
        assert_eq!(read.groups[0].scaling_group(), "gamelift-gameservergroup-pvp-eu");
        let many = (0..30).map(|number| format!("\"g{number}\"")).collect::<Vec<_>>().join(",");
        assert_eq!(names(&format!(r#"{{"GameServerGroups":[{many}]}}"#)).len(), 30);
    }

    #[test]
    fn what_is_no_name_costs_its_own_group_only() {
        let long = "x".repeat(257);
        let text =
            format!(r#"{{"GameServerGroups": ["a b", "ok", 7, "", "{long}", "x:gameservergroup/y", null]}}"#);
        let read = read(&text).unwrap();
        assert_eq!(read.groups.iter().map(Group::name).collect::<Vec<_>>(), ["ok"]);
        assert_eq!(read.refused.len(), 6, "{:?}", read.refused);
    }

    #[test]
    fn a_text_that_names_nothing_is_an_error() {
        for text in [
            "",
            "[]",
            "{}",
            "pvp-eu",
            r#"{"GameServerGroups": []}"#,
            r#"{"GameServerGroups": "pvp-eu"}"#,
            r#"{"gameservergroups": ["pvp-eu"]}"#,
            r#"{"GameServerGroups": ["a b"]}"#,
            r#"{"GameServerGroups": ["pvp-eu"]"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }
}
