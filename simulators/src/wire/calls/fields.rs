//! The members of a request, each asked for by name and kind.

use crate::wire::value::Value;
use crate::world::{Paging, Refusal};

/// The members of a map. Those that nobody asks for are ignored, and null is absent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    message: &'a Value,
}

impl<'a> Fields<'a> {
    pub(super) fn of(message: &'a Value) -> Result<Self, Refusal> {
        match message {
            Value::Map(_) => Ok(Self { message }),
            _ => Err(Refusal::invalid("the body must be a map")),
        }
    }

    pub(super) fn text(&self, name: &str) -> Result<Option<&'a str>, Refusal> {
        let Some(value) = self.message.get(name) else { return Ok(None) };
        value.as_text().map(Some).ok_or_else(|| Refusal::invalid(format!("{name} must be text")))
    }

    pub(super) fn optional<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, Refusal>,
    ) -> Result<Option<T>, Refusal> {
        self.text(name)?.map(parse).transpose()
    }

    pub(super) fn required<T>(
        &self,
        name: &str,
        parse: impl FnOnce(&str) -> Result<T, Refusal>,
    ) -> Result<T, Refusal> {
        self.optional(name, parse)?.ok_or_else(|| Refusal::invalid(format!("{name} is required")))
    }

    pub(super) fn number(&self, name: &str) -> Result<Option<u32>, Refusal> {
        let wrong = || Refusal::invalid(format!("{name} must be a whole number"));
        match self.message.get(name) {
            None => Ok(None),
            Some(Value::Integer(number)) => u32::try_from(*number).map(Some).map_err(|_| wrong()),
            Some(_) => Err(wrong()),
        }
    }

    pub(super) fn real(&self, name: &str) -> Result<Option<f64>, Refusal> {
        match self.message.get(name) {
            None => Ok(None),
            Some(Value::Integer(number)) => Ok(Some(*number as f64)),
            Some(Value::Float(number)) => Ok(Some(*number)),
            Some(_) => Err(Refusal::invalid(format!("{name} must be a number"))),
        }
    }

    pub(super) fn list(&self, name: &str) -> Result<Option<&'a [Value]>, Refusal> {
        match self.message.get(name) {
            None => Ok(None),
            Some(Value::List(items)) => Ok(Some(items)),
            Some(_) => Err(Refusal::invalid(format!("{name} must be a list"))),
        }
    }

    pub(super) fn texts(&self, name: &str) -> Result<Option<Vec<&'a str>>, Refusal> {
        let Some(items) = self.list(name)? else { return Ok(None) };
        let texts = items.iter().map(Value::as_text).collect::<Option<Vec<_>>>();
        texts.map(Some).ok_or_else(|| Refusal::invalid(format!("{name} must be a list of text")))
    }

    pub(super) fn map(&self, name: &str) -> Result<Option<Self>, Refusal> {
        match self.message.get(name) {
            None => Ok(None),
            Some(message @ Value::Map(_)) => Ok(Some(Self { message })),
            Some(_) => Err(Refusal::invalid(format!("{name} must be a map"))),
        }
    }

    pub(super) fn paging(&self) -> Result<Paging, Refusal> {
        let limit = match self.number("Limit")? {
            Some(0) => return Err(Refusal::invalid("Limit must be at least 1")),
            Some(limit) => Some(usize::try_from(limit).unwrap_or(usize::MAX)),
            None => None,
        };
        let token = self.optional("NextToken", |text| match text.len() {
            1..=1024 => Ok(text.to_owned()),
            _ => Err(Refusal::invalid("NextToken must have 1 to 1024 characters")),
        })?;
        Ok(Paging { limit, token })
    }
}
