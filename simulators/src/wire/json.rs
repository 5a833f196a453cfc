//! JSON 1.1.

use serde_json::{Map, Number, json};

use super::value::Value;

/// A body that is no JSON.
#[derive(Debug, thiserror::Error)]
#[error("could not read the body as JSON")]
pub(crate) struct JsonError(#[source] serde_json::Error);

/// Reads a body; an empty one is an empty map.
pub(crate) fn read(body: &[u8]) -> Result<Value, JsonError> {
    if body.is_empty() {
        return Ok(Value::Map(Vec::new()));
    }
    serde_json::from_slice(body).map(from_json).map_err(JsonError)
}

fn from_json(json: serde_json::Value) -> Value {
    match json {
        serde_json::Value::Null => Value::Null,
        serde_json::Value::Bool(value) => Value::Bool(value),
        serde_json::Value::Number(number) => match number.as_i64() {
            Some(integer) => Value::Integer(integer),
            None => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => Value::Text(text),
        serde_json::Value::Array(items) => Value::List(items.into_iter().map(from_json).collect()),
        serde_json::Value::Object(members) => {
            Value::Map(members.into_iter().map(|(name, value)| (name, from_json(value))).collect())
        }
    }
}

/// Writes a body.
pub(crate) fn write(value: &Value) -> Vec<u8> {
    to_json(value).to_string().into_bytes()
}

fn to_json(value: &Value) -> serde_json::Value {
    match value {
        Value::Null => serde_json::Value::Null,
        Value::Bool(value) => json!(value),
        Value::Integer(value) => json!(value),
        Value::Float(value) => float(*value),
        Value::Text(text) => json!(text),
        // Seconds with three digits after the point.
        Value::Time(time) => float(time.as_millisecond() as f64 / 1000.0),
        Value::List(items) => items.iter().map(to_json).collect(),
        Value::Map(members) => {
            let members = members.iter().map(|(name, value)| (name.clone(), to_json(value)));
            serde_json::Value::Object(members.collect::<Map<_, _>>())
        }
    }
}

fn float(value: f64) -> serde_json::Value {
    Number::from_f64(value).map_or(serde_json::Value::Null, serde_json::Value::Number)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::value::Members;

    #[test]
    fn times_are_seconds_with_a_fraction() {
        let time = jiff::Timestamp::from_millisecond(1_790_000_000_250).unwrap();
        let body = write(&Members::new().with("RegistrationTime", time).into());
        assert_eq!(String::from_utf8(body).unwrap(), r#"{"RegistrationTime":1790000000.25}"#);
    }

    #[test]
    fn an_empty_body_is_an_empty_map_and_null_is_absent() {
        assert_eq!(read(b"").unwrap(), Value::Map(Vec::new()));
        assert_eq!(read(br#"{"Limit":null}"#).unwrap().get("Limit"), None);
        assert!(read(b"\xbf\xff").is_err());
    }
}
