//! Commands and replies as Redis writes them (RESP 2). Pure.

use std::fmt;

/// Arrays in arrays beyond this are none of ours.
const DEEPEST: u32 = 8;

/// A command with its arguments.
#[derive(Clone, PartialEq, Eq)]
pub struct Command(Vec<Vec<u8>>);

/// Only the verb is shown: what follows may be a secret.
impl fmt::Debug for Command {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let verb = self.0.first().map(|verb| String::from_utf8_lossy(verb)).unwrap_or_default();
        write!(formatter, "Command({verb} …)")
    }
}

impl Command {
    /// A command without arguments.
    #[must_use]
    pub fn new(verb: &str) -> Self {
        Self(vec![verb.as_bytes().to_vec()])
    }

    /// The same with one more argument.
    #[must_use]
    pub fn with(mut self, argument: impl AsRef<[u8]>) -> Self {
        self.0.push(argument.as_ref().to_vec());
        self
    }

    /// Its bytes.
    #[must_use]
    pub fn to_wire(&self) -> Vec<u8> {
        let mut bytes = format!("*{}\r\n", self.0.len()).into_bytes();
        for part in &self.0 {
            bytes.extend(format!("${}\r\n", part.len()).into_bytes());
            bytes.extend(part);
            bytes.extend(b"\r\n");
        }
        bytes
    }
}

/// Something that is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("this is not how Redis replies")]
pub struct Malformed;

/// What the server does not do, in its own words: the first is a code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// The code, such as `READONLY`.
    #[must_use]
    pub fn code(&self) -> &str {
        self.0.split(' ').next().unwrap_or_default()
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

/// What the server replies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// A word, such as `OK`.
    Status(String),
    /// A refusal.
    Error(Refusal),
    /// A number.
    Integer(i64),
    /// Bytes, or nothing.
    Bulk(Option<Vec<u8>>),
    /// Several, or nothing.
    Array(Option<Vec<Reply>>),
}

impl Reply {
    /// The first reply in the bytes and its length; `None` while it is not there in full.
    ///
    /// # Errors
    /// When the bytes are something else.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Malformed> {
        let mut reader = Reader { bytes, at: 0 };
        Ok(reader.reply(0)?.map(|reply| (reply, reader.at)))
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    fn reply(&mut self, depth: u32) -> Result<Option<Reply>, Malformed> {
        let Some(line) = self.line() else { return Ok(None) };
        let (kind, rest) = line.split_first().ok_or(Malformed)?;
        let text = || String::from_utf8_lossy(rest).into_owned();
        Ok(Some(match kind {
            b'+' => Reply::Status(text()),
            b'-' => Reply::Error(Refusal(text())),
            b':' => Reply::Integer(number(rest)?),
            b'$' => match length(rest)? {
                None => Reply::Bulk(None),
                Some(length) => match self.block(length)? {
                    None => return Ok(None),
                    Some(block) => Reply::Bulk(Some(block.to_vec())),
                },
            },
            b'*' if depth < DEEPEST => match length(rest)? {
                None => Reply::Array(None),
                Some(length) => {
                    let mut parts = Vec::new();
                    for _ in 0..length {
                        match self.reply(depth + 1)? {
                            None => return Ok(None),
                            Some(part) => parts.push(part),
                        }
                    }
                    Reply::Array(Some(parts))
                }
            },
            _ => return Err(Malformed),
        }))
    }

    /// The next line, without its end.
    fn line(&mut self) -> Option<&'a [u8]> {
        let rest = &self.bytes[self.at..];
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        self.at += end + 2;
        Some(&rest[..end])
    }

    /// So many bytes, and the end of a line.
    fn block(&mut self, length: usize) -> Result<Option<&'a [u8]>, Malformed> {
        let rest = &self.bytes[self.at..];
        let Some(ended) = rest.get(..length.saturating_add(2)) else { return Ok(None) };
        let block = ended.strip_suffix(b"\r\n").ok_or(Malformed)?;
        self.at += ended.len();
        Ok(Some(block))
    }
}

fn number(text: &[u8]) -> Result<i64, Malformed> {
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// A length; `None` for -1, which stands for nothing.
fn length(text: &[u8]) -> Result<Option<usize>, Malformed> {
    match number(text)? {
        -1 => Ok(None),
        length => usize::try_from(length).map(Some).map_err(|_| Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bulk(text: &str) -> Reply {
        Reply::Bulk(Some(text.as_bytes().to_vec()))
    }

    #[test]
    fn commands_are_arrays_of_blocks() {
        let command = Command::new("PUBLISH").with("i-1").with("ä");
        assert_eq!(command.to_wire(), "*3\r\n$7\r\nPUBLISH\r\n$3\r\ni-1\r\n$2\r\nä\r\n".as_bytes());
        let login = Command::new("AUTH").with("hidden");
        assert_eq!(format!("{login:?}"), "Command(AUTH …)");
    }

    #[test]
    fn replies_of_every_kind_are_read() {
        let refusal = Refusal("READONLY You can't write against a read only replica.".to_owned());
        for (wire, expected) in [
            ("+OK\r\n", Reply::Status("OK".to_owned())),
            ("-READONLY You can't write against a read only replica.\r\n", Reply::Error(refusal.clone())),
            (":-7\r\n", Reply::Integer(-7)),
            ("$5\r\na\r\nbc\r\n", bulk("a\r\nbc")),
            ("$0\r\n\r\n", bulk("")),
            ("$-1\r\n", Reply::Bulk(None)),
            ("*-1\r\n", Reply::Array(None)),
            ("*0\r\n", Reply::Array(Some(Vec::new()))),
            (
                "*3\r\n$7\r\nmessage\r\n$3\r\ni-1\r\n:1\r\n",
                Reply::Array(Some(vec![bulk("message"), bulk("i-1"), Reply::Integer(1)])),
            ),
        ] {
            let followed = format!("{wire}+NEXT\r\n");
            assert_eq!(Reply::read(followed.as_bytes()), Ok(Some((expected, wire.len()))), "{wire:?}");
            for cut in 0..wire.len() {
                assert_eq!(Reply::read(&wire.as_bytes()[..cut]), Ok(None), "{wire:?} cut at {cut}");
            }
        }
        assert_eq!(refusal.code(), "READONLY");
    }

    #[test]
    fn anything_else_is_malformed() {
        for wire in ["HTTP/1.1 400\r\n", "$x\r\n", "$-2\r\n", ":\r\n", "\r\n", "$1\r\nab\r\n", "*1\r\n?\r\n"]
        {
            assert_eq!(Reply::read(wire.as_bytes()), Err(Malformed), "{wire:?}");
        }
        assert_eq!(Reply::read("*1\r\n".repeat(100).as_bytes()), Err(Malformed));
    }
}
