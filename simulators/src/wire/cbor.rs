//! CBOR, as much of it as the protocol RPC v2 has: definite and indefinite lengths, integers of any width, floats of any
//! width, and times under tag 1.

use jiff::Timestamp;

use super::value::Value;

/// Nothing that is sent here is nested deeper.
const DEEPEST: usize = 32;

/// A body that is no CBOR, or none that this protocol has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CborError {
    #[error("the body ends in the middle of a value")]
    Cut,
    #[error("the body has more than one value")]
    Surplus,
    #[error("the body has {what} at byte {at}")]
    Unusual { what: &'static str, at: usize },
}

/// How times and maps are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Style {
    /// Maps and lists without a length, ended by a break.
    pub(crate) is_indefinite: bool,
    /// Times as whole seconds.
    pub(crate) has_integer_times: bool,
}

/// Reads a body; an empty one is an empty map.
pub(crate) fn read(body: &[u8]) -> Result<Value, CborError> {
    if body.is_empty() {
        return Ok(Value::Map(Vec::new()));
    }
    let mut reader = Reader { body, at: 0 };
    let value = reader.value(DEEPEST)?;
    if reader.at == body.len() { Ok(value) } else { Err(CborError::Surplus) }
}

struct Reader<'a> {
    body: &'a [u8],
    at: usize,
}

/// The length of a value, when it is said at its head.
#[derive(Clone, Copy)]
enum Length {
    Definite(u64),
    Indefinite,
}

impl Reader<'_> {
    fn take(&mut self, count: u64) -> Result<&[u8], CborError> {
        let count = usize::try_from(count).map_err(|_| CborError::Cut)?;
        let end = self.at.checked_add(count).ok_or(CborError::Cut)?;
        let bytes = self.body.get(self.at..end).ok_or(CborError::Cut)?;
        self.at = end;
        Ok(bytes)
    }

    fn byte(&mut self) -> Result<u8, CborError> {
        self.take(1).map(|bytes| bytes[0])
    }

    fn unusual<T>(&self, what: &'static str) -> Result<T, CborError> {
        Err(CborError::Unusual { what, at: self.at.saturating_sub(1) })
    }

    fn number(&mut self, width: u64) -> Result<u64, CborError> {
        Ok(self.take(width)?.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn length(&mut self, extra: u8) -> Result<Length, CborError> {
        Ok(match extra {
            0..=23 => Length::Definite(u64::from(extra)),
            24..=27 => Length::Definite(self.number(1 << (extra - 24))?),
            31 => Length::Indefinite,
            _ => return self.unusual("a reserved length"),
        })
    }

    fn definite(&mut self, extra: u8) -> Result<u64, CborError> {
        match self.length(extra)? {
            Length::Definite(length) => Ok(length),
            Length::Indefinite => self.unusual("a number without an end"),
        }
    }

    /// Whether the break that ends an indefinite value is next; it is taken if so.
    fn takes_break(&mut self) -> bool {
        let is_break = self.body.get(self.at) == Some(&0xff);
        self.at += usize::from(is_break);
        is_break
    }

    fn value(&mut self, depth: usize) -> Result<Value, CborError> {
        if depth == 0 {
            return self.unusual("too deep a value");
        }
        let head = self.byte()?;
        let extra = head & 0x1f;
        match head >> 5 {
            0 => self.definite(extra).map(integer),
            1 => Ok(match integer(self.definite(extra)?) {
                Value::Integer(value) => Value::Integer(-1 - value),
                _ => Value::Float(f64::NEG_INFINITY),
            }),
            2 => self.unusual("a string of bytes"),
            3 => self.text(extra).map(Value::Text),
            4 => self.list(extra, depth),
            5 => self.map(extra, depth),
            6 => self.tagged(extra, depth),
            _ => self.simple(extra),
        }
    }

    fn text(&mut self, extra: u8) -> Result<String, CborError> {
        let mut text = String::new();
        let mut lengths = match self.length(extra)? {
            Length::Definite(length) => Some(length),
            Length::Indefinite => None,
        };
        loop {
            let length = match lengths {
                Some(length) => length,
                None if self.takes_break() => return Ok(text),
                None => {
                    let head = self.byte()?;
                    if head >> 5 != 3 {
                        return self.unusual("a piece of text that is none");
                    }
                    self.definite(head & 0x1f)?
                }
            };
            match std::str::from_utf8(self.take(length)?) {
                Ok(piece) => text.push_str(piece),
                Err(_) => return self.unusual("text that is not UTF-8"),
            }
            if lengths.take().is_some() {
                return Ok(text);
            }
        }
    }

    fn list(&mut self, extra: u8, depth: usize) -> Result<Value, CborError> {
        let mut items = Vec::new();
        match self.length(extra)? {
            Length::Definite(length) => {
                for _ in 0..length {
                    items.push(self.value(depth - 1)?);
                }
            }
            Length::Indefinite => {
                while !self.takes_break() {
                    items.push(self.value(depth - 1)?);
                }
            }
        }
        Ok(Value::List(items))
    }

    fn map(&mut self, extra: u8, depth: usize) -> Result<Value, CborError> {
        let mut members = Vec::new();
        let length = self.length(extra)?;
        loop {
            let ends = match length {
                Length::Definite(length) => members.len() as u64 == length,
                Length::Indefinite => self.takes_break(),
            };
            if ends {
                return Ok(Value::Map(members));
            }
            let Value::Text(name) = self.value(depth - 1)? else {
                return self.unusual("a name that is no text");
            };
            members.push((name, self.value(depth - 1)?));
        }
    }

    fn tagged(&mut self, extra: u8, depth: usize) -> Result<Value, CborError> {
        let tag = self.definite(extra)?;
        let value = self.value(depth - 1)?;
        if tag != 1 {
            return Ok(value);
        }
        let time = match value {
            Value::Integer(seconds) => Timestamp::from_second(seconds),
            Value::Float(seconds) => Timestamp::from_millisecond((seconds * 1000.0).round() as i64),
            _ => return self.unusual("a time that is no number"),
        };
        time.map(Value::Time).or_else(|_| self.unusual("a time out of range"))
    }

    fn simple(&mut self, extra: u8) -> Result<Value, CborError> {
        Ok(match extra {
            20 => Value::Bool(false),
            21 => Value::Bool(true),
            22 | 23 => Value::Null,
            25 => Value::Float(half(self.number(2)?)),
            26 => Value::Float(f64::from(f32::from_bits(u32::try_from(self.number(4)?).unwrap_or(0)))),
            27 => Value::Float(f64::from_bits(self.number(8)?)),
            _ => return self.unusual("a simple value that nobody knows"),
        })
    }
}

fn integer(number: u64) -> Value {
    // Wider than any number of this protocol: not an integer that anything here would accept.
    i64::try_from(number).map_or(Value::Float(f64::INFINITY), Value::Integer)
}

fn half(bits: u64) -> f64 {
    let sign = if bits >> 15 & 1 == 1 { -1.0 } else { 1.0 };
    let exponent = i32::try_from(bits >> 10 & 0x1f).unwrap_or(0);
    let fraction = (bits & 0x3ff) as f64;
    sign * match exponent {
        0 => fraction * 2f64.powi(-24),
        31 if fraction == 0.0 => f64::INFINITY,
        31 => f64::NAN,
        _ => (1024.0 + fraction) * 2f64.powi(exponent - 25),
    }
}

/// Writes a body.
pub(crate) fn write(value: &Value, style: Style) -> Vec<u8> {
    let mut body = Vec::new();
    write_into(&mut body, value, style);
    body
}

fn write_into(body: &mut Vec<u8>, value: &Value, style: Style) {
    match value {
        Value::Null => body.push(0xf6),
        Value::Bool(value) => body.push(if *value { 0xf5 } else { 0xf4 }),
        Value::Integer(value) => write_integer(body, *value),
        Value::Float(value) => write_float(body, *value),
        Value::Text(text) => {
            write_head(body, 3, text.len() as u64);
            body.extend_from_slice(text.as_bytes());
        }
        Value::Time(time) => {
            write_head(body, 6, 1);
            if style.has_integer_times {
                write_integer(body, time.as_second());
            } else {
                write_float(body, time.as_millisecond() as f64 / 1000.0);
            }
        }
        Value::List(items) => {
            open(body, 4, items.len(), style);
            items.iter().for_each(|item| write_into(body, item, style));
            close(body, style);
        }
        Value::Map(members) => {
            open(body, 5, members.len(), style);
            for (name, value) in members {
                write_head(body, 3, name.len() as u64);
                body.extend_from_slice(name.as_bytes());
                write_into(body, value, style);
            }
            close(body, style);
        }
    }
}

fn open(body: &mut Vec<u8>, kind: u8, length: usize, style: Style) {
    if style.is_indefinite {
        body.push(kind << 5 | 31);
    } else {
        write_head(body, kind, length as u64);
    }
}

fn close(body: &mut Vec<u8>, style: Style) {
    if style.is_indefinite {
        body.push(0xff);
    }
}

fn write_integer(body: &mut Vec<u8>, value: i64) {
    match u64::try_from(value) {
        Ok(value) => write_head(body, 0, value),
        Err(_) => write_head(body, 1, (-1 - value).unsigned_abs()),
    }
}

fn write_float(body: &mut Vec<u8>, value: f64) {
    body.push(0xfb);
    body.extend_from_slice(&value.to_be_bytes());
}

/// A kind and a number in as few bytes as there may be.
fn write_head(body: &mut Vec<u8>, kind: u8, number: u64) {
    let bytes = number.to_be_bytes();
    let (extra, width) = match number {
        0..=23 => return body.push(kind << 5 | bytes[7]),
        24..=0xff => (24, 1),
        0x100..=0xffff => (25, 2),
        0x1_0000..=0xffff_ffff => (26, 4),
        _ => (27, 8),
    };
    body.push(kind << 5 | extra);
    body.extend_from_slice(&bytes[8 - width..]);
}

#[cfg(test)]
mod tests;
