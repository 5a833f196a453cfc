//! A message, apart from how it is written: what JSON and CBOR have in common, and times.

use jiff::Timestamp;

/// A value of a message.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Integer(i64),
    Float(f64),
    Text(String),
    Time(Timestamp),
    List(Vec<Value>),
    Map(Vec<(String, Value)>),
}

impl Value {
    /// A member that is there; null is as good as absent.
    pub(crate) fn get(&self, member: &str) -> Option<&Value> {
        let Self::Map(members) = self else { return None };
        let (_, value) = members.iter().find(|(name, _)| name == member)?;
        (*value != Self::Null).then_some(value)
    }

    pub(crate) fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            _ => None,
        }
    }
}

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::Text(text)
    }
}

impl From<Timestamp> for Value {
    fn from(time: Timestamp) -> Self {
        Self::Time(time)
    }
}

impl From<Vec<Value>> for Value {
    fn from(items: Vec<Value>) -> Self {
        Self::List(items)
    }
}

/// A map whose absent members are left out.
#[derive(Debug, Default)]
pub(crate) struct Members(Vec<(String, Value)>);

impl Members {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0.push((name.to_owned(), value.into()));
        self
    }

    #[must_use]
    pub(crate) fn with_some(self, name: &str, value: Option<impl Into<Value>>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}

impl From<Members> for Value {
    fn from(members: Members) -> Self {
        Self::Map(members.0)
    }
}
